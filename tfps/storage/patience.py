"""Bears with storage that does not answer for a while, where its last answer will do."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from tfps.storage.failures import StorageError

HOLD_SECONDS = 300.0
_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class Patience:
    """Who asks again and again, and goes on meanwhile, lets the last answer hold so long."""

    def __init__(self, seconds: float = HOLD_SECONDS):
        """Counts from the last answer.

        Args:
            seconds: Without any answer after which it is an error.
        """
        self._seconds = seconds
        self._answered = time.monotonic()
        self._is_waiting = False

    def ask(self, question: Callable[[], _Answer], last: _Answer) -> _Answer:
        """The answer to a question; the last one while the storage gives none."""
        try:
            answer = question()
        except StorageError as error:
            silent = time.monotonic() - self._answered
            if not error.may_pass:
                raise
            if silent > self._seconds:
                raise StorageError(f"for {silent:.0f} s {error}", may_pass=True) from None
            if not self._is_waiting:
                _log.warning("%s; going on meanwhile, for up to %.0f s", error, self._seconds)
            self._is_waiting = True
            return last
        self._answered, self._is_waiting = time.monotonic(), False
        return answer
