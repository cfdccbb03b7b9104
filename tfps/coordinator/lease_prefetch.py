"""Opens leases on the workers that will train them, while these train others."""

import concurrent.futures
import logging
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.coordinator.executor import Executor
from tfps.leases.lease import Lease
from tfps.leases.progress import LaneProgress
from tfps.storage.paths import is_cloud
from tfps.worker.closures import Closures

# More than a request to storage takes, and several looks of the chief at the progress.
AHEAD_SECONDS = 1.5
_log = logging.getLogger(__name__)


class LeasePrefetcher:
    """Lets a worker that is about to end its lease fetch the beginning of its next one.

    Workers take the waiting leases in the order in which they were scheduled, so the worker that
    ends first takes the first of them. Where that guess is wrong a worker has fetched a block of
    bytes for nothing and another one waits for its own, as it would have without. Shards on local
    disk need none of this.
    """

    def __init__(self, executor: Executor, closures: Closures):
        self._executor = executor
        self._closures = closures
        self._opened: dict[int, Lease] = {}  # by lane, the last lease opened

    def update(
        self,
        in_flight: Mapping[int, Lease],
        rows: Sequence[LaneProgress],
        step_seconds: float | None,
    ) -> None:
        """Opens the leases whose turn is near.

        Args:
            step_seconds: How long a step takes; None while that is not known.
        """
        if step_seconds is None:
            return
        running, waiting = [], []
        for lane, lease in in_flight.items():
            row = rows[lane]
            if not row.attempts:
                waiting.append((lane, lease))
            elif row.worker >= 0:  # else it is just being begun, and by whom is not written yet
                left = lease.batches - row.steps
                running.append((left * step_seconds, row.worker))
        for (seconds, worker), (lane, lease) in zip(sorted(running), waiting, strict=False):
            if seconds < AHEAD_SECONDS and self._opened.get(lane) is not lease:
                self._opened[lane] = lease
                self._open(worker, lease)

    def _open(self, worker: int, lease: Lease) -> None:
        if not is_cloud(lease.source.path):
            return

        def tell(future: concurrent.futures.Future) -> None:
            if error := future.exception():
                _log.info("%s could not be opened ahead on worker %d: %s", lease, worker, error)

        args = (lease.source.pack(), tf.constant(lease.first, tf.int64))
        self._executor.run_on(worker, self._closures.open, args).add_done_callback(tell)
