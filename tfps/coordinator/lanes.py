"""The leases in flight."""

import concurrent.futures
import contextlib
import itertools
import queue
import time
from collections.abc import Sequence

from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import Executor
from tfps.leases.lease import Lease
from tfps.leases.progress import NO_PROGRESS, LeaseProgress

_TOGETHER_SECONDS = 25e-6  # for each lane: 50 ms where there are 2,000


class Lanes:
    """Holds each lease in flight in a lane of its own, whose progress is kept on a ps.

    Attributes:
        rows: Progress of each lane, as it was read last, or none for a lease sent since.
    """

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
        """Whether no lease is in flight."""
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
        """The futures whose closures have ended since the last call, once there are some.

        Where lanes are many, those that end soon after the first are waited for: the next leases
        are then prepared together, while workers train those that wait for them.

        Args:
            seconds: How long to wait for the first; then there may be none.
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
        """Reads the progress of all lanes."""
        self.rows = self._ps_calls("reading progress", self._progress.read)

    def records_trained(self, lane: int, lease: Lease) -> int:
        """Records trained of the lease in a lane, as it was read last."""
        row = self.rows[lane]
        return lease.records_of(row.steps) - row.bad


def lanes_of(executor: Executor, at_barrier: bool = False) -> int:
    """How many leases may be in flight.

    One running and one waiting per worker; none waits where workers wait for each other, since
    they would wait for it, too.
    """
    workers = len(executor.workers)
    return workers if at_barrier else 2 * workers
