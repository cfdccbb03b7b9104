"""The chief's own calls of the ps, which a stopped ps would hold for ever."""

import concurrent.futures
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from tfps.cluster.monitor import TaskMonitor
from tfps.errors import RunError

_POLL_SECONDS = 0.25
_LEAST_SPEED = 10_000_000  # bytes that a ps reads or writes in a second, at least
_REPORTED_AFTER = 0.1  # of a call's limit: nothing else is logged while it lasts
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class PsCalls:
    """Makes calls in a thread of their own, one after the other, and waits while it makes sense.

    A call of TensorFlow cannot be taken back, but it can be left alone. After one that was, there
    can be no other: a new connection needs a new object.
    """

    def __init__(self, monitor: TaskMonitor, limit_seconds: float):
        self._monitor = monitor
        self._limit_seconds = limit_seconds  # for one call that moves no bytes
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "ps-calls")

    def __call__(
        self,
        doing: str,
        function: Callable[[], _T],
        moved_bytes: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> _T:
        """Returns what the function returns, raises what it raises; a long call is logged once.

        For each 10 MB of `moved_bytes`, which a ps reads or writes, the call may take a second
        more. `meanwhile` is called in this thread while the ps are at work.
        """
        began, limit = time.monotonic(), self._limit_seconds + moved_bytes / _LEAST_SPEED
        future, is_reported = self._thread.submit(function), False
        meanwhile()
        while True:
            taken = time.monotonic() - began
            if not is_reported and taken > _REPORTED_AFTER * limit:
                is_reported = True
                _log.warning(
                    "%s has taken %.0f s so far; the ps are waited for, up to %.0f s",
                    doing,
                    taken,
                    limit,
                )
            is_late = taken > limit
            if is_late:
                self._monitor.wait_for_pending_probes()
            done, _ = concurrent.futures.wait([future], _POLL_SECONDS)
            if done:
                return future.result()
            self._monitor.refuse_lost_ps()
            if is_late:
                raise RunError(
                    f"{doing} has taken {limit:.0f} s and is not done, though every "
                    "ps can be reached; look at the logs of the ps, and whether --job_dir takes "
                    "what is written to it; --stall_seconds allows more time"
                )
