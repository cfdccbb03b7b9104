"""The leases in flight."""

import concurrent.futures
import contextlib
import itertools
import logging
import queue
import time
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import Executor
from tfps.leases.lease import Lease
from tfps.leases.progress import NO_PROGRESS, LaneProgress, LeaseProgress
from tfps.storage.paths import is_cloud
from tfps.worker.closures import Closures

# More than a request to storage takes, and several looks of the chief at the progress.
AHEAD_SECONDS = 1.5
_log = logging.getLogger(__name__)
_TOGETHER_SECONDS = 25e-6  # for each lane: 50 ms where there are 2,000


class LeasePrefetcher:
    """Lets a worker that is about to end its lease fetch the start of its next one.

    Workers take waiting leases in the order of scheduling, so the one that ends first takes the
    first. A wrong guess costs one block of bytes. Shards on local disk need none of this.
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
        """Opens the leases whose turn is near; `step_seconds` is None while not known."""
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

        def report(future: concurrent.futures.Future) -> None:
            if error := future.exception():
                _log.info("%s could not be opened ahead on worker %d: %s", lease, worker, error)

        args = (lease.source.pack(), tf.constant(lease.first, tf.int64))
        self._executor.run_on(worker, self._closures.open, args).add_done_callback(report)


class Lanes:
    """Holds each lease in flight in a lane whose progress is kept on a ps; `rows` as last read."""

    def __init__(self, progress: LeaseProgress, ps_calls: PsCalls, lanes: int):
        self.rows = [NO_PROGRESS] * lanes
        self._progress = progress
        self._ps_calls = ps_calls
        self._in_flight: dict[concurrent.futures.Future, tuple[int, Lease]] = {}
        self._done: queue.Queue[concurrent.futures.Future] = queue.Queue()
        self._free = list(range(lanes))
        self._numbers = itertools.count(1)  # of leases
        self._places = [0] * lanes  # of the lease in each lane
        self._ended: set[int] = set()  # free lanes whose last lease may still be begun again

    @property
    def free(self) -> int:
        """How many lanes have no lease."""
        return len(self._free)

    @property
    def are_empty(self) -> bool:
        return not self._in_flight

    @property
    def leases(self) -> dict[int, Lease]:
        """The leases in flight by lane, in the order in which they were sent."""
        return dict(self._in_flight.values())

    def prepare(self, leases: Sequence[Lease]) -> dict[int, Lease]:
        """Gives each lease a lane, which has no progress yet."""
        given = {self._free.pop(): lease for lease in leases}
        # Also a lane that gets none: a closure that begins only now has nothing to train there.
        numbers = {lane: next(self._numbers) for lane in {*given, *self._ended}}
        if numbers:
            self._ps_calls("preparing leases", lambda: self._progress.clear(numbers))
        for lane, number in numbers.items():
            self._places[lane] = self._progress.place(lane, number)
            self.rows[lane] = NO_PROGRESS
        self._ended.clear()
        return given

    def place(self, lane: int) -> int:
        """What names a lane and the lease in it, as `LeaseProgress.place` does."""
        return self._places[lane]

    def sent(self, future: concurrent.futures.Future, lane: int, lease: Lease) -> None:
        """Notes a lease that a closure trains, whose result arrives in a future."""
        self._in_flight[future] = lane, lease
        future.add_done_callback(self._done.put)

    def wait(self, seconds: float) -> list[concurrent.futures.Future]:
        """The futures that ended since the last call, once there are some or `seconds` are over.

        With many lanes it also waits for those that end soon after the first: the next leases are
        then prepared together, while workers train the ones that wait.
        """
        # Not concurrent.futures.wait, which touches every future each time it is called.
        done: list[concurrent.futures.Future] = []
        with contextlib.suppress(queue.Empty):
            done.append(self._done.get(timeout=seconds))
            deadline = time.monotonic() + _TOGETHER_SECONDS * len(self.rows)
            while len(done) < len(self._in_flight):
                left = deadline - time.monotonic()
                done.append(self._done.get(timeout=left) if left > 0 else self._done.get_nowait())
        return done

    def arrived(self, future: concurrent.futures.Future) -> tuple[int, Lease]:
        """The lane and the lease whose closure has ended; the lane stays the lease's."""
        return self._in_flight.pop(future)

    def release(self, lane: int) -> None:
        """Frees the lane of a lease that is done."""
        self._free.append(lane)
        self._ended.add(lane)

    def read(self) -> None:
        self.rows = self._ps_calls("reading progress", self._progress.read)

    def records_trained(self, lane: int, lease: Lease) -> int:
        """Records trained of the lease in a lane, as it was read last."""
        row = self.rows[lane]
        return lease.records_of(row.steps) - row.bad


def lanes_of(executor: Executor, at_barrier: bool = False) -> int:
    """Leases in flight: one per worker and, unless workers wait for each other, one waiting."""
    workers = len(executor.workers)
    return workers if at_barrier else 2 * workers
