"""The chief's loop over leases that all replicas train together."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tfps.allreduce.closures import TrainedRounds
from tfps.allreduce.replica import Order, Replica
from tfps.coordinator.coordinator import Gradients, not_finite
from tfps.coordinator.progress import Progress, TrainingMeter
from tfps.data.pieces import Piece
from tfps.data.record_source import RecordSource
from tfps.evaluation.results import EvaluatedPiece
from tfps.leases.lease import Lease
from tfps.leases.queue import LeaseQueue
from tfps.store.learning_rates import Changes


class ReplicaCoordinator:
    """Gives out one lease at a time, to all replicas; does the chief's own share of it.

    Attributes:
        meter: What is measured meanwhile; a lease's length is in rounds.
    """

    def __init__(self, replica: Replica, fingerprint: dict[str, Any]):
        """Gives out nothing yet.

        Args:
            fingerprint: What must be equal on all replicas, as JSON-ready data by name.
        """
        self.meter = TrainingMeter(range(replica.group.size))
        self.replica = replica
        self._fingerprint = fingerprint
        self._are_equal = False

    def train(
        self,
        queue: LeaseQueue,
        pause: Callable[[], bool],
        report: Callable[[Progress], None],
        due: float = math.inf,
    ) -> None:
        self._share_parameters()
        self.replica.tell(
            Order.TAKE_LEASES, state=queue.state().to_json(), learning_rates=self._learning_rates()
        )
        self.meter.begin(queue)
        has_begun = False
        while queue.batches_left and not (has_begun and pause()):
            self._train(queue, report, due - time.monotonic())
            has_begun = True
        self.meter.pause(queue)

    def evaluate(self, pieces: Iterable[Piece]) -> Iterator[EvaluatedPiece]:
        self._share_parameters()
        self.replica.tell(Order.EVALUATE)
        yield from self.replica.evaluate(pieces)

    def gradients(self, source: RecordSource, lease: Sequence[int]) -> Gradients:
        return self.replica.gradients(source, lease)

    def _share_parameters(self) -> None:
        """Lets all replicas begin with equal parameters: initial values, or a checkpoint's."""
        if not self._are_equal:
            self.replica.tell(
                Order.TAKE_PARAMETERS,
                fingerprint=self._fingerprint,
                steps=self.replica.store.steps(),
                learning_rates=self._learning_rates(),
            )
            self.replica.share_parameters()
            self._are_equal = True

    def _learning_rates(self) -> Changes:
        """Those that the chief has set; none where it may not."""
        rates = self.replica.store.learning_rates
        return rates.changes if rates else ()

    def _train(self, queue: LeaseQueue, report: Callable[[Progress], None], seconds: float) -> None:
        rounds = self.meter.lease_length.within(queue.batches_left, 1, seconds)
        batches = rounds * self.replica.group.size
        self.replica.tell(Order.TRAIN, batches=batches)
        lease = queue.take(batches)
        assert lease is not None

        def poll(rounds: int, loss_sum: float) -> None:
            report(self.meter.measure(queue, self._trained(lease, rounds), loss_sum))

        trained = self.replica.train(lease, poll)
        if trained.bad_round >= 0:
            raise not_finite(f"in round {trained.bad_round + 1} of {lease}")
        self._finish(queue, lease, trained)
        report(self.meter.measure(queue, 0, 0.0))

    def _finish(self, queue: LeaseQueue, lease: Lease, trained: TrainedRounds) -> None:
        queue.finish(lease, lease.records)
        self.meter.finished(trained.loss_sum)
        self.meter.lease_length.measured(trained.rounds, trained.seconds)
        for index, share in enumerate(self.replica.shares(lease)):
            self.meter.worker_shares.trained(index, share.records, trained.began, trained.seconds)

    def _trained(self, lease: Lease, rounds: int) -> int:
        """Records of a lease that so many rounds have trained."""
        shares = self.replica.shares(lease)
        return sum(min(rounds * lease.batch_size, share.records) for share in shares)
