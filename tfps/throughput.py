"""Examples per second at steady state."""

import time
from collections.abc import Callable


class Throughput:
    """Counts training time from the first trained batch on, pauses left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since: float | None = None
        self._at = 0
        self._seconds = 0.0
        self._examples = 0

    def update(self, examples: int) -> None:
        """Notes how many examples are trained by now; starts counting when there are any."""
        now = self._clock()
        if self._since is not None:
            self._seconds += now - self._since
            self._examples += examples - self._at
        if examples > 0:
            self._since, self._at = now, examples

    def pause(self, examples: int) -> None:
        """Leaves out the time until the next `update` that finds more examples."""
        self.update(examples)
        self._since = None

    @property
    def seconds(self) -> float:
        """Time counted."""
        return self._seconds

    @property
    def examples_per_second(self) -> float:
        """Examples trained in that time, per second; 0 when nothing was counted."""
        return self._examples / self._seconds if self._seconds > 0 else 0.0
