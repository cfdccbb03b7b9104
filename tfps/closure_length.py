"""How many steps to pack into one closure."""

TARGET_SECONDS = 5.0
_FIRST_STEPS = 50
_WEIGHT = 0.5  # of the newest measurement


class ClosureLength:
    """Chooses the steps of a closure from the time that steps were measured to take.

    A closure costs the chief messages and the worker the opening of a file, so it should be long;
    but progress is handed back, and a pause begins, only where one ends.
    """

    def __init__(self, target_seconds: float = TARGET_SECONDS):
        """Starts with a short closure, since nothing is measured yet.

        Args:
            target_seconds: How long a closure should run.
        """
        self._target_seconds = target_seconds
        self._step_seconds: float | None = None

    @property
    def steps(self) -> int:
        """Steps of the next closure."""
        if self._step_seconds is None:
            return _FIRST_STEPS
        return max(1, round(self._target_seconds / self._step_seconds))

    def measured(self, steps: int, seconds: float) -> None:
        """Notes how long so many steps of one closure took."""
        if steps < 1 or seconds <= 0.0:  # a lease begun again after its last step
            return
        newest, last = seconds / steps, self._step_seconds
        self._step_seconds = newest if last is None else last + _WEIGHT * (newest - last)
