"""Examples per second at steady state."""

import time
from collections.abc import Callable


class Throughput:
    """Counts training time from the first trained batch on, without what lies between epochs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._is_counting = False
        self._since = 0.0
        self._at = 0
        self._seconds = 0.0
        self._examples = 0

    def begin(self, examples: int) -> None:
        """Training begins, or goes on after a pause, with so many examples trained before."""
        self._is_counting = self._examples > 0
        self._since, self._at = self._clock(), examples

    def update(self, examples: int) -> None:
        """Notes how many examples are trained by now; the first batch ever starts the counting."""
        now = self._clock()
        if self._is_counting:
            self._seconds += now - self._since
            self._examples += examples - self._at
        elif examples > self._at:
            self._is_counting = True
        self._since, self._at = now, examples

    def pause(self, examples: int) -> None:
        """Leaves out the time until training goes on."""
        self.update(examples)
        self._is_counting = False

    @property
    def seconds(self) -> float:
        """Time counted."""
        return self._seconds

    @property
    def examples_per_second(self) -> float:
        """Examples trained in that time, per second; 0 when nothing was counted."""
        return self._examples / self._seconds if self._seconds > 0 else 0.0
