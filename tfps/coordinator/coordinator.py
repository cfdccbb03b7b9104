"""The chief's loop over leases, in any mode."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from tfps.data.record_source import Piece, RecordSource
from tfps.errors import RunError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.evaluation.progressive import Judged
from tfps.job_dir.report import WorkerShare
from tfps.leases.lease import LeaseLength
from tfps.leases.queue import LeaseQueue
from tfps.monitoring.events import LeaseTimes, Sampled

POLL_SECONDS = 0.25
Gradients = tuple[list[np.ndarray], dict[str, np.ndarray]]


class Throughput:
    """Counts training time from the first trained batch on, without what lies between epochs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._is_counting = False
        self._since = 0.0
        self._at = 0
        self._first: tuple[float, int] | None = None  # when the first batch was trained
        self.seconds = 0.0  # counted
        self.examples = 0  # trained in these seconds

    def begin(self, examples: int) -> None:
        """Training begins or resumes, with some examples trained before."""
        self._is_counting = self.examples > 0
        self._since, self._at = self._clock(), examples

    def update(self, examples: int) -> None:
        """Notes how many examples are trained by now; the first batch ever starts the counting."""
        now = self._clock()
        if self._is_counting:
            self.seconds += now - self._since
            self.examples += examples - self._at
        elif examples > self._at:
            self._is_counting = True
        self._since, self._at = now, examples
        if self._is_counting and self._first is None:
            self._first = now, examples

    def pause(self, examples: int) -> None:
        """Leaves out the time until training resumes."""
        self.update(examples)
        self._is_counting = False

    @property
    def examples_per_second(self) -> float:
        """0 when nothing was counted."""
        return self.examples / self.seconds if self.seconds > 0 else 0.0

    @property
    def with_pauses(self) -> float:
        """Examples per second from the first trained batch to the last, all between included."""
        since, before = self._first or (self._since, self._at)
        return (self._at - before) / (self._since - since) if self._since > since else 0.0


class WorkerShares:
    """Counts by worker, recorded as closures end."""

    def __init__(self, workers: Sequence[int]):
        self.lease_times = LeaseTimes()
        self._shares = [WorkerShare()] * (1 + max(workers))
        self._ended: dict[int, float] = {}  # when a worker's last lease did, in this stretch

    def begin(self) -> None:
        """Training begins, or resumes after a pause, which no worker is to be blamed for."""
        self._ended = {}

    def trained(
        self, worker: int, records: int, began: float, seconds: float, leases: int = 1
    ) -> None:
        """Records a closure that has ended, with 0 or 1 leases done."""
        idle = max(0.0, began - self._ended.get(worker, began))
        self._shares[worker] = self._shares[worker].plus(
            WorkerShare(leases, records, seconds, idle)
        )
        self._ended[worker] = began + seconds
        if leases:
            self.lease_times = self.lease_times.with_another(seconds)

    def report(self) -> list[WorkerShare]:
        return [
            dataclasses.replace(
                share, seconds=round(share.seconds, 3), idle_seconds=round(share.idle_seconds, 3)
            )
            for share in self._shares
        ]


class TrainingMeter:
    """Measures how far the training of leases has come, and takes samples of it."""

    def __init__(self, workers: Sequence[int], judged: Sequence[str] = ()):
        """`judged` are the labels whose predictions closures compare with the records."""
        self.throughput = Throughput()
        self._judged = self._judged_before = Judged.nothing(judged)
        self.lease_length = LeaseLength()
        self.worker_shares = WorkerShares(workers)
        self.loss_sum = 0.0  # over the records of all trained leases, of the loss of their batch
        self.epoch = 0
        self.examples = 0
        self.loss: float | None = None  # mean over the records trained last
        self._loss_sum = 0.0  # with that of leases in flight
        self._sampled: tuple[int, float, float] | None = None  # examples, loss, when

    def begin(self, queue: LeaseQueue) -> None:
        """Training begins, or resumes after a pause."""
        self.throughput.begin(queue.trained)
        self.worker_shares.begin()
        self.epoch, self.examples, self._loss_sum = queue.epoch, queue.trained, self.loss_sum
        self._sampled = self._sampled or (self.examples, self.loss_sum, time.monotonic())

    def pause(self, queue: LeaseQueue) -> None:
        """Leaves out the time until training resumes."""
        self.throughput.pause(queue.trained)

    def finished(self, loss_sum: float) -> None:
        """Notes the loss of a lease that is trained, the sum over its records."""
        self.loss_sum += loss_sum

    def judged(self, counts: np.ndarray) -> None:
        """Notes what a closure has counted of its records' predictions."""
        self._judged = self._judged.plus(counts)

    @property
    def judged_so_far(self) -> Judged:
        """What was counted since this process connected."""
        return self._judged

    def measure(self, queue: LeaseQueue, examples: int, loss_sum: float) -> None:
        """Notes how far the training is, with the records and the loss of leases in flight."""
        examples += queue.trained
        loss_sum += self.loss_sum
        self.throughput.update(examples)
        if examples > self.examples:
            self.loss = (loss_sum - self._loss_sum) / (examples - self.examples)
        self.epoch, self.examples, self._loss_sum = queue.epoch, examples, loss_sum

    def since_sample(self) -> tuple[int, float, float]:
        """Records trained since the last sample, the sum of their loss, and the seconds."""
        examples, loss_sum, then = self._sampled or (self.examples, self._loss_sum, math.inf)
        now = time.monotonic()
        return self.examples - examples, self._loss_sum - loss_sum, now - then

    def sample(self, queue: LeaseQueue, steps: int) -> Sampled:
        """How far the training was when it was last measured; `steps` counts updates."""
        new, loss_sum, seconds = self.since_sample()
        self._sampled = self.examples, self._loss_sum, time.monotonic()
        judged, self._judged_before = self._judged.since(self._judged_before), self._judged
        return Sampled(
            at=time.time(),
            epoch=self.epoch,
            examples=self.examples,
            steps=steps,
            loss=loss_sum / new if new > 0 else None,
            examples_per_second=max(0, new) / seconds if seconds > 0 else 0.0,
            training_seconds=round(self.throughput.seconds, 3),
            repeated=queue.repeated,
            bad=queue.bad,
            workers=tuple(self.worker_shares.report()),
            leases=self.worker_shares.lease_times,
            judged=judged.metrics(),
        )


class Coordinator(Protocol):
    """Has leases trained, and shards evaluated; every wait has a limit."""

    meter: TrainingMeter

    def train(
        self,
        queue: LeaseQueue,
        pause: Callable[[], bool],
        report: Callable[[TrainingMeter], None],
        due: float = math.inf,
    ) -> None:
        """Trains to the end of the epoch, or until `pause` is true and no lease is in flight.

        `report` runs several times a second. `due` is when, on the monotonic clock, `pause` turns
        true at the latest.
        """

    def evaluate(self, pieces: Iterable[Piece]) -> Iterator[EvaluatedPiece]:
        """Evaluates each record once; `pieces` begin at multiples of the batch size."""

    def gradients(self, source: RecordSource, lease: Sequence[int]) -> Gradients:
        """`Closures.gradients` of a lease as NumPy values; pushes nothing."""


def not_finite(where: str) -> RunError:
    """The error of a loss that is not finite; `where` as "at step 3 of epoch 1, shard …"."""
    return RunError(
        f"the loss is not finite {where}; lower the learning rate, or look for infinite values in "
        "the data; the last checkpoint, if there is one, holds the parameters from before"
    )
