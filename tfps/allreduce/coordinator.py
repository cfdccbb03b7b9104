"""The chief's loop over leases that all replicas train together."""

import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tfps.allreduce.replica import Order, Replica
from tfps.allreduce.step import TrainedRounds
from tfps.coordinator.coordinator import Gradients, Progress, TrainingMeter, not_finite
from tfps.data.record_source import Piece, RecordSource
from tfps.errors import UserError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.leases.lease import Lease
from tfps.leases.queue import LeaseQueue, QueueState
from tfps.store.run_state import Changes

_log = logging.getLogger(__name__)


class ReplicaFollower:
    """Trains and evaluates with the chief.

    It has a lease queue of its own, which gives out what the chief's does.
    """

    def __init__(
        self,
        replica: Replica,
        fingerprint: dict[str, Any],
        queue: Callable[[QueueState], LeaseQueue],
        pieces: Callable[[], Iterable[Piece]],
    ):
        """Has not heard of the chief yet.

        Args:
            fingerprint: What must be equal on all replicas, as JSON-ready data by name.
            pieces: Gives the evaluation data, as `ReplicaCoordinator.evaluate` is given it.
        """
        self._replica = replica
        self._fingerprint = json.loads(json.dumps(fingerprint))  # as the chief's arrive
        self._make_queue = queue
        self._pieces = pieces
        self._queue: LeaseQueue | None = None

    def run(self, poll: Callable[[], None]) -> None:
        """Does what the chief tells, until one of the replicas is gone.

        Args:
            poll: Called several times a second; may raise.
        """
        while True:
            order, details = self._replica.listen(poll)
            if order is Order.TAKE_PARAMETERS:
                self._refuse_other(details["fingerprint"])
                self._replica.share_parameters()
                self._replica.store.set_steps(details["steps"])
                self._take_learning_rates(details["learning_rates"])
                _log.info("took over the chief's parameters, step %d", details["steps"])
            elif order is Order.TAKE_LEASES:
                self._queue = self._make_queue(msgspec.convert(details["state"], QueueState))
                self._take_learning_rates(details["learning_rates"])
            elif order is Order.TRAIN:
                self._train(details["batches"], poll)
            else:
                for _ in self._replica.evaluate(self._pieces()):
                    pass  # the chief measures

    def _take_learning_rates(self, changes: Changes) -> None:
        if rates := self._replica.store.learning_rates:
            rates.restore(changes)

    def _train(self, batches: int, poll: Callable[[], None]) -> None:
        assert self._queue is not None
        lease = self._queue.take(batches)
        assert lease is not None
        self._replica.train(lease, lambda rounds, loss_sum: poll())
        self._queue.finish(lease, lease.records)

    def _refuse_other(self, chiefs: dict[str, Any]) -> None:
        other = [name for name, fact in chiefs.items() if self._fingerprint.get(name) != fact]
        if other:
            mine = {name: self._fingerprint.get(name) for name in other}
            theirs = {name: chiefs[name] for name in other}
            raise UserError(
                f"this replica was started otherwise than the chief: {', '.join(other)} must be "
                f"equal, but is {mine} here and {theirs} there; give every task the same flags, "
                "files and versions"
            )


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
            Order.TAKE_LEASES,
            state=dataclasses.asdict(queue.state()),
            learning_rates=self._learning_rates(),
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
