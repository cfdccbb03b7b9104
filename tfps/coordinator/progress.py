"""How far a training has come."""

import dataclasses
import time
from collections.abc import Callable, Sequence

from tfps.job_dir.report_fields import WorkerShare
from tfps.leases.lease_length import LeaseLength
from tfps.leases.queue import LeaseQueue
from tfps.monitoring.events import LeaseTimes


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far the training has come.

    Attributes:
        epoch: From 0.
        examples: Records trained since the run began, those of unfinished leases included.
        loss: Mean loss of the records trained since the last report, None when there were none.
    """

    epoch: int
    examples: int
    examples_per_second: float
    loss: float | None


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


@dataclasses.dataclass
class _Share:
    leases: int = 0
    records: int = 0
    seconds: float = 0.0
    idle_seconds: float = 0.0
    ended: float | None = None  # when its last lease did, within this stretch of training


class WorkerShares:
    """Counts by worker, told by the closures as they end."""

    def __init__(self, workers: Sequence[int]):
        self.lease_times = LeaseTimes()
        self._shares = [_Share() for _ in range(1 + max(workers))]

    def begin(self) -> None:
        """Training begins, or goes on after a pause, which no worker is to be blamed for."""
        for share in self._shares:
            share.ended = None

    def trained(
        self, worker: int, records: int, began: float, seconds: float, leases: int = 1
    ) -> None:
        """Notes a closure that has ended.

        Args:
            leases: How many are done with it: 0 or 1.
        """
        share = self._shares[worker]
        share.leases += leases
        share.records += records
        share.seconds += seconds
        if share.ended is not None:
            share.idle_seconds += max(0.0, began - share.ended)
        share.ended = began + seconds
        if leases:
            self.lease_times = self.lease_times.with_another(seconds)

    def report(self) -> list[WorkerShare]:
        """The shares, by index of the worker."""
        return [
            WorkerShare(
                leases=share.leases,
                records=share.records,
                seconds=round(share.seconds, 3),
                idle_seconds=round(share.idle_seconds, 3),
            )
            for share in self._shares
        ]


class TrainingMeter:
    """Measures the training of leases, and keeps what was reported last."""

    def __init__(self, workers: Sequence[int]):
        self.throughput = Throughput()
        self.lease_length = LeaseLength()
        self.worker_shares = WorkerShares(workers)
        self._loss_of_finished = 0.0
        self._reported = (0, 0.0)

    def begin(self, queue: LeaseQueue) -> None:
        """Training begins, or goes on after a pause."""
        self.throughput.begin(queue.trained)
        self.worker_shares.begin()
        self._reported = queue.trained, self._loss_of_finished

    def pause(self, queue: LeaseQueue) -> None:
        """Leaves out the time until training goes on."""
        self.throughput.pause(queue.trained)

    @property
    def loss_sum(self) -> float:
        """The sum over the records of all leases that are trained of the loss of their batch."""
        return self._loss_of_finished

    def finished(self, loss_sum: float) -> None:
        """Notes the loss of a lease that is trained, the sum over its records."""
        self._loss_of_finished += loss_sum

    def measure(self, queue: LeaseQueue, examples: int, loss_sum: float) -> Progress:
        """How far the training has come."""
        examples += queue.trained
        loss = self._loss_of_finished + loss_sum
        self.throughput.update(examples)
        new_examples, new_loss = examples - self._reported[0], loss - self._reported[1]
        self._reported = examples, loss
        mean = new_loss / new_examples if new_examples > 0 else None
        return Progress(queue.epoch, examples, self.throughput.examples_per_second, mean)
