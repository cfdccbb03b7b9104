"""How many steps a lease has."""

import math

TARGET_SECONDS = 5.0
LEAST_SECONDS = 1.0
_FIRST_STEPS = 16
_WEIGHT = 0.5  # of the newest measurement


class LeaseLength:
    """Chooses the steps of a lease from the time that steps were measured to take.

    A lease costs the chief messages and the worker the opening of a file, so it should be long; but
    a pause begins only where one ends, and at the end of an epoch the others wait for the last one.
    """

    def __init__(
        self, target_seconds: float = TARGET_SECONDS, least_seconds: float = LEAST_SECONDS
    ):
        """Starts with short leases, since nothing is measured yet.

        Args:
            least_seconds: How long it should take at least, however little of the epoch is left.
        """
        self._target_seconds = target_seconds
        self._least_seconds = least_seconds
        self._step_seconds: float | None = None

    @property
    def step_seconds(self) -> float | None:
        """How long a step takes; None while none was measured."""
        return self._step_seconds

    @property
    def steps(self) -> int:
        """Steps that take as long as a lease should."""
        return self._within(self._target_seconds, _FIRST_STEPS)

    def within(self, left: int, workers: int, seconds: float = math.inf) -> int:
        """Steps of the next lease.

        Args:
            workers: Number of workers. With several, a lease has at most half of each one's share
                of what is left, so that they end the epoch together.
            seconds: Until the pause that is to come next. A worker has two leases, one of which
                waits for the other: with at most a quarter of what is left each, they get shorter
                as the pause comes nearer, and it waits for two halves of the least length.
        """
        steps = self._before_pause(seconds)
        if workers == 1:
            return steps
        share = left // (2 * workers)
        return min(steps, max(share, self._within(self._least_seconds, 1)))

    def in_rounds(self, left: int, members: int, seconds: float = math.inf) -> int:
        """Steps of the next lease, where workers make their steps together.

        All are as fast as the slowest, so that what each one should get is known: an equal share of
        what is left, those who still train counted in. Then no round is left to some of them, which
        takes as long as one of all, and whose mean is of fewer records.

        Args:
            left: Steps of the epoch that are not trained, be they in a lease or in none yet.
        """
        return min(self._before_pause(seconds), max(1, -(-left // members)))

    def measured(self, steps: int, seconds: float) -> None:
        """Notes how long so many steps of one closure took."""
        if steps < 1 or seconds <= 0.0:  # a lease begun again after its last step
            return
        newest, last = seconds / steps, self._step_seconds
        self._step_seconds = newest if last is None else last + _WEIGHT * (newest - last)

    def _before_pause(self, seconds: float) -> int:
        """Steps of a lease after which a pause in so many seconds does not come much too late."""
        most = min(self._target_seconds, max(self._least_seconds / 2, seconds / 4))
        return self._within(most, _FIRST_STEPS)

    def _within(self, seconds: float, unmeasured: int) -> int:
        if self._step_seconds is None:
            return unmeasured
        return max(1, round(seconds / self._step_seconds))
