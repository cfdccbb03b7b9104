"""When a run may go on with other workers than before."""

import time
from collections.abc import Callable
from typing import Any

_TIMES = 4.0  # as long as the last change took, so that all take a fifth of the time at most
_MOST_SECONDS = 1800.0  # a worker that is away may not be kept for an hour: TensorFlow gives up


class WorkerChanges:
    """Keeps changes of workers apart, since nobody trains during one.

    A change lasts from its beginning to the next trained batch. The next one may begin once
    training has gone on for some times as long; whoever comes or goes until then is part of it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        """None was made yet.

        Args:
            clock: Seconds, the same for all programs of a machine.
        """
        self._clock = clock
        self._began: float | None = None
        self._went_on: float | None = None
        self._examples: int | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "WorkerChanges":
        """From what `to_json` gave, in the program that goes on."""
        found = cls()
        found._began, found._went_on = data["began"], data["went_on"]
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data, for a program that begins again."""
        return {"began": self._began, "went_on": self._went_on}

    def begin(self) -> None:
        """A change begins."""
        self._began, self._went_on = self._clock(), None

    def trained(self, examples: int) -> None:
        """Notes how many records are trained by now."""
        before, self._examples = self._examples, examples
        if before is not None and examples > before and self._went_on is None:
            self._went_on = self._clock()

    def seconds_left(self) -> float:
        """How long the next change has to wait; 0 if it may begin."""
        if self._began is None:
            return 0.0
        now, since, least = self._clock(), self._began, _MOST_SECONDS
        if self._went_on is not None:
            since, least = self._went_on, min(least, _TIMES * (self._went_on - self._began))
        return max(0.0, since + least - now)
