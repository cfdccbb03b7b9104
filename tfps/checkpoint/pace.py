"""How fast a checkpoint is written while training goes on."""

import threading
import time

_RESTS = 2.0  # times as long as a turn of writing took


class Pace:
    """Rests between the turns of a save, so that training beside it has most of every core.

    A save takes what it takes of cores and disk: spread over three times as long it takes a third
    of it at any moment.
    """

    def __init__(self, spread_seconds: float):
        """Does nothing yet.

        Args:
            spread_seconds: How long after its begin a save rests no more; 0 never to rest.
        """
        self._spread_seconds = spread_seconds
        self._is_waited_for = threading.Event()
        self._end = 0.0

    def begin(self) -> None:
        """A save begins, for which nobody waits yet."""
        self._is_waited_for.clear()
        self._end = time.monotonic() + self._spread_seconds

    def hurry(self) -> None:
        """Somebody waits for the save: a rest that is under way ends, and there are no more."""
        self._is_waited_for.set()

    def rest(self, worked_seconds: float) -> None:
        """Rests after a turn."""
        left = self._end - time.monotonic()
        self._is_waited_for.wait(max(0.0, min(_RESTS * worked_seconds, left)))
