"""How a run goes from one of the datasets that it follows to the next."""

import logging
import time
from collections.abc import Callable

from tfps.data.followed_data import FollowedData, RunData
from tfps.data.manifest import Manifest
from tfps.leases.queue import LeaseQueue

_POLL_SECONDS = 0.25
_QUIET_SECONDS = 10.0
_log = logging.getLogger(__name__)


class Following:
    """Waits for the next dataset where all that are there are trained."""

    def __init__(self, data: FollowedData, queue: LeaseQueue):
        self.has_ended = False  # whether the wait for another dataset was too long
        self._data = data
        self._queue = queue
        self._since: float | None = None  # when the wait began, on the monotonic clock
        self._has_said = False  # that it waits

    @classmethod
    def of(cls, data: RunData, queue: LeaseQueue) -> "Following | None":
        """None for a run whose datasets are known from the beginning."""
        return cls(data, queue) if isinstance(data, FollowedData) else None

    def await_next(self, pause: Callable[[], bool], meanwhile: Callable[[], None]) -> bool:
        """Whether there is something to train; False at a pause, or when the wait is too long."""
        queue, data = self._queue, self._data
        while queue.epoch_finished and not pause():
            if data.wait(queue.epoch, _POLL_SECONDS):
                self._since, self._has_said = None, False
                return True
            now = time.monotonic()
            self._since = self._since or now
            if not self._has_said and now - self._since > _QUIET_SECONDS:
                self._has_said = True
                _log.info("waiting up to %.0f s for %s", data.seconds, data.wanted)
            if now - self._since > data.seconds:
                _log.info("%s did not appear within %.0f s", data.wanted, data.seconds)
                self.has_ended = True
                return False
            meanwhile()
        return False

    def trained(self) -> list[Manifest]:
        """The datasets of which some records are trained that no checkpoint holds."""
        return self._data.begun(self._queue.epoch)

    def saved(self, number: int) -> None:
        """Forgets the datasets before one: all of their records are in a checkpoint."""
        self._data.saved(number)
        self._queue.bad_records.forget(lambda shard: not self._data.has_shard(shard))

    def stop(self) -> None:
        """Takes no more."""
        self._data.stop()
