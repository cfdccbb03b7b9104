"""What every replica but the chief does: what the chief tells it."""

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from tfps.allreduce.replica import Order, Replica
from tfps.data.pieces import Piece
from tfps.errors import UserError
from tfps.leases.queue import LeaseQueue
from tfps.leases.queue_state import QueueState
from tfps.store.learning_rates import Changes

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
                self._queue = self._make_queue(QueueState.from_json(details["state"]))
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
