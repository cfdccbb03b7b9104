"""The chief's loop over leases, in any mode."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tfps.data.record_source import Piece, RecordSource
from tfps.errors import RunError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.job_dir.report import ReportedRecovery, WorkerShare
from tfps.leases.lease import LeaseLength
from tfps.leases.queue import LeaseQueue
from tfps.monitoring.events import LeaseTimes

_MOST_WITHOUT_PROGRESS = 5
POLL_SECONDS = 0.25
Gradients = tuple[list[np.ndarray], dict[str, np.ndarray]]


@dataclasses.dataclass
class Recovery:
    """A loss of ps: when (since 1970), records to train again, seconds to a batch or None."""

    what: str
    when: float
    records: int = 0
    seconds: float | None = None


class Recoveries:
    """The recoveries of a run, recorded as it loses parameters, restores them and trains on."""

    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._recoveries: list[Recovery] = []
        self._trained = 0  # as far as is known
        self._in_vain = 0  # recoveries since the last trained batch

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Recoveries":
        """From what `to_json` gave, in the process that goes on."""
        found = cls()
        found._recoveries = [Recovery(**each) for each in data["recoveries"]]
        found._trained, found._in_vain = data["trained"], data["in_vain"]
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data, for a process that begins again."""
        return {
            "recoveries": [dataclasses.asdict(each) for each in self._recoveries],
            "trained": self._trained,
            "in_vain": self._in_vain,
        }

    def trained(self, examples: int) -> float | None:
        """Records the records trained; returns the recovery's seconds with the first after it."""
        is_more, self._trained = examples > self._trained, examples
        if not is_more or not self._in_vain:
            return None
        self._in_vain = 0
        last = self._recoveries[-1]
        last.seconds = self._clock() - last.when
        return last.seconds

    def begin(self, what: str) -> None:
        """Notes a loss."""
        self._recoveries.append(Recovery(what, self._clock()))
        self._in_vain += 1
        if self._in_vain > _MOST_WITHOUT_PROGRESS:
            raise RunError(
                f"{what}, as {_MOST_WITHOUT_PROGRESS} times before without a batch trained in "
                "between; look at its log, fix what ends it, and start every task again with the "
                "same --job_dir to go on from the last checkpoint"
            )

    def restored(self, examples: int) -> None:
        """Notes how many records the restored parameters were trained on."""
        if self._in_vain:
            self._recoveries[-1].records += self._trained - examples
        self._trained = examples

    def report(self) -> list[ReportedRecovery]:
        """All of them, as they are now."""
        return [
            ReportedRecovery(each.what, each.when, each.records, each.seconds)
            for each in self._recoveries
        ]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Epoch from 0, records trained in all, and mean loss since the last report or None."""

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
        """Training begins or resumes, with some examples trained before."""
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
    """Counts by worker, recorded as closures end."""

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
        """Records a closure that has ended, with 0 or 1 leases done."""
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


class Coordinator(Protocol):
    """Has leases trained, and shards evaluated; every wait has a limit."""

    meter: TrainingMeter

    def train(
        self,
        queue: LeaseQueue,
        pause: Callable[[], bool],
        report: Callable[[Progress], None],
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
        "the data; the last checkpoint holds the parameters from before"
    )
