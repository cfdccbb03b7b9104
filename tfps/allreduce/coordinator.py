"""The chief's loop over leases that all replicas train together."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfps.allreduce.replica import Order, Replica, TrainedLease
from tfps.coordinator.progress import Progress, ProgressMeter, WorkerShares
from tfps.data.record_source import RecordSource
from tfps.errors import RunError
from tfps.evaluation.results import EvaluationResult
from tfps.leases.lease import Lease
from tfps.leases.lease_length import LeaseLength
from tfps.leases.queue import LeaseQueue


class ReplicaCoordinator:
    """Gives out one lease at a time, to all replicas; does the chief's own part of it.

    Attributes:
        throughput: Speed of the training at steady state.
        lease_length: Rounds per lease.
        worker_shares: Which replica trained how much of what this coordinator gave out.
        replica: The chief's own.
    """

    def __init__(self, replica: Replica, fingerprint: dict[str, Any]):
        """Gives out nothing yet.

        Args:
            replica: The chief's own.
            fingerprint: What must be equal on all replicas, as JSON-ready data by name.
        """
        self._meter = ProgressMeter()
        self.throughput = self._meter.throughput
        self.lease_length = LeaseLength()
        self.worker_shares = WorkerShares(range(replica.group.size))
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
        """Trains leases until the epoch is finished or a pause is asked for.

        Returns with no lease in flight.

        Args:
            queue: Where leases come from and go to.
            pause: Asked before each lease but the first; True ends the training.
            report: Called several times a second.
            due: When, on the monotonic clock, `pause` will be true if not before.

        Raises:
            UserError: If a shard cannot be used.
            LostReplicaError: If a replica is lost.
            RunError: If the loss is not finite or nothing moves any more.
        """
        self._share_parameters()
        self.replica.tell(Order.TAKE_LEASES, state=queue.state().to_json())
        self._meter.begin(queue)
        self.worker_shares.begin()
        has_begun = False
        while queue.left and not (has_begun and pause()):
            self._train(queue, report, due - time.monotonic())
            has_begun = True
        self._meter.pause(queue)

    def evaluate(self, shards: Sequence[tuple[RecordSource, int]]) -> EvaluationResult:
        """Evaluates shards on all replicas.

        Args:
            shards: Source, with its end, and number of records of each shard that has any; the
                evaluation shards, which all replicas know.

        Raises:
            UserError: If a shard cannot be used.
            LostReplicaError: If a replica is lost.
            RunError: If nothing moves any more.
        """
        self._share_parameters()
        self.replica.tell(Order.EVALUATE)
        results = self.replica.evaluate(shards)
        records = sum(count for _, count in shards)
        return EvaluationResult.of(results, records)

    def _share_parameters(self) -> None:
        """Lets all replicas begin with equal parameters: initial values, or a checkpoint's."""
        if not self._are_equal:
            self.replica.tell(
                Order.TAKE_PARAMETERS,
                fingerprint=self._fingerprint,
                steps=self.replica.store.steps(),
            )
            self.replica.share_parameters()
            self._are_equal = True

    def _train(self, queue: LeaseQueue, report: Callable[[Progress], None], seconds: float) -> None:
        left = -(-queue.left // self.replica.batch_size)
        batches = self.lease_length.within(left, 1, seconds) * self.replica.group.size
        self.replica.tell(Order.TRAIN, batches=batches)
        lease = queue.take(batches)
        assert lease is not None

        def poll(rounds: int, loss_sum: float) -> None:
            report(self._meter.measure(queue, self._trained(lease, rounds), loss_sum))

        trained = self.replica.train(lease, poll)
        if trained.bad_round >= 0:
            raise RunError(
                f"the loss is not finite in round {trained.bad_round + 1} of {lease}; lower the "
                "learning rate, or look for infinite values in the data; the last checkpoint "
                "holds the parameters from before"
            )
        self._finish(queue, lease, trained)
        report(self._meter.measure(queue, 0, 0.0))

    def _finish(self, queue: LeaseQueue, lease: Lease, trained: TrainedLease) -> None:
        queue.finish(lease, lease.records)
        self._meter.finished(trained.loss_sum)
        self.lease_length.measured(trained.rounds, trained.seconds)
        for index, part in enumerate(self.replica.parts(lease)):
            self.worker_shares.trained(index, part.records, trained.began, trained.seconds)

    def _trained(self, lease: Lease, rounds: int) -> int:
        """Records of a lease that so many rounds have trained."""
        parts = self.replica.parts(lease)
        return sum(min(rounds * self.replica.batch_size, part.records) for part in parts)
