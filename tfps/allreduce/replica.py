"""What every replica does alike: trains its share of a lease, evaluates its share of the shards."""

import concurrent.futures
import enum
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tfps.allreduce.group import LostReplicaError, ReplicaExecutor
from tfps.allreduce.step import LANE, ReplicaClosures, TrainedRounds
from tfps.cluster import failures
from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.coordinator import POLL_SECONDS, Gradients
from tfps.data.record_source import Piece, RecordSource
from tfps.errors import RunError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.leases.bad_record_log import explain_failure
from tfps.leases.lease import Lease, LeaseShare
from tfps.store.parameter_store import ParameterStore
from tfps.store.partitioned_variable import TensorSlice
from tfps.worker.closures import Closures

_T = TypeVar("_T")


class Order(enum.StrEnum):
    """What the chief tells all replicas to do next."""

    TAKE_PARAMETERS = "take over my parameters, slots, state and learning rates"
    TAKE_LEASES = "take over the state of my lease queue, and my learning rates"
    TRAIN = "train the next lease"
    EVALUATE = "evaluate the evaluation shards"


class Replica:
    """One replica's part in what the chief asks all of them to do."""

    def __init__(
        self,
        executor: ReplicaExecutor,
        store: ParameterStore,
        train: ReplicaClosures,
        evaluate: Closures,
        monitor: TaskMonitor,
        stall_seconds: float,
    ):
        self.group = executor.group
        self.store = store
        self._executor = executor
        self._train, self._evaluate = train, evaluate
        self._monitor = monitor
        self._stall_seconds = stall_seconds
        self._calls = concurrent.futures.ThreadPoolExecutor(1, "collectives")

    def tell(self, order: Order, **details: Any) -> None:
        """Tells all replicas what to do next; on the chief."""
        message = json.dumps([order.name, details]).encode()
        self._call(
            f"telling all replicas: {order}",
            lambda: self.group.gather_bytes(message),
        )

    def listen(self, poll: Callable[[], None]) -> tuple[Order, dict[str, Any]]:
        """Waits for what the chief tells; on any other replica, for as long as the chief answers.

        Args:
            poll: Called several times a second meanwhile; may raise.
        """
        doing = "waiting for the chief"
        message, *_ = self._call(doing, lambda: self.group.gather_bytes(b""), poll)
        name, details = json.loads(message)
        return Order[name], details

    def share_parameters(self) -> None:
        """Gives all replicas the chief's parameters, slots and state; all replicas call it."""
        for slice_ in self.store.slices():
            self._call(f"sharing {slice_.name}", functools.partial(self._share, slice_))

    def shares(self, lease: Lease) -> list[LeaseShare]:
        """How the replicas share a lease, by their numbers."""
        return LeaseShare.of(lease, self.group.size)

    def train(self, lease: Lease, poll: Callable[[int, float], None]) -> TrainedRounds:
        """Trains this replica's share of a lease, together with all others.

        Args:
            poll: Called several times a second with the rounds that are trained, and the sum over
                their records of their loss.
        """
        shares = self.shares(lease)
        mine, rounds = shares[self.group.index], max(share.batches for share in shares)
        numbers = tf.constant([mine.begin, mine.end, rounds, lease.seed], tf.int64)
        self._train.progress.clear({LANE: 0})
        changed, last = time.monotonic(), -1

        def look() -> None:
            nonlocal changed, last
            row = self._train.progress.read()[LANE]
            poll(row.steps, row.loss_sum)
            if row.steps != last:
                changed, last = time.monotonic(), row.steps
            elif time.monotonic() - changed > self._stall_seconds:
                raise self._stall(f"training {lease}")

        source = lease.source
        future = self._executor.schedule(self._train.train, (source.pack(), numbers))
        doing = f"training epoch {lease.epoch + 1}"
        return TrainedRounds.unpack(self._result(future, doing, source, look))

    def gradients(self, source: RecordSource, lease: Sequence[int]) -> Gradients:
        args = source.pack(), tf.constant([*lease, LANE], tf.int64)
        future = self._executor.schedule(self._evaluate.gradients, args)
        doing = "computing gradients"
        found: Gradients = self._result(future, doing, source, self._limit(doing))
        return found

    def evaluate(self, pieces: Iterable[Piece]) -> Iterator[EvaluatedPiece]:
        """Evaluates records together with all others, as many pieces at a time as there are."""
        todo = iter(pieces)
        while of_all := list(itertools.islice(todo, self.group.size)):
            mine = []
            for piece in of_all[self.group.index : self.group.index + 1]:
                future = self._executor.schedule(self._evaluate.evaluate, piece.tensors())
                look = self._limit(f"evaluating shard {piece.source.path}")
                found = self._result(future, "evaluation", piece.source, look)
                mine.append(EvaluatedPiece(*found))
            every = self._gathered(EvaluatedPiece.pack(mine))
            yield from (result for each in every for result in EvaluatedPiece.unpack(each))

    def _gathered(self, packed: bytes) -> list[bytes]:
        """What all replicas have packed."""
        doing = "waiting for what the other replicas evaluate"
        return self._call(doing, lambda: self.group.gather_bytes(packed))

    def _share(self, slice_: TensorSlice) -> None:
        with tf.device(slice_.device):
            for first, count in slice_.chunks():
                if self.group.index:
                    nothing = tf.zeros([count, *slice_.shape[1:]], slice_.variable.dtype)
                    slice_.write(first, self.group.broadcast(nothing))
                else:
                    self.group.broadcast(slice_.value(first, count))

    def _call(
        self, doing: str, function: Callable[[], _T], poll: Callable[[], None] | None = None
    ) -> _T:
        """Calls what other replicas call too; without `poll`, until the time is up."""
        future = self._calls.submit(function)
        self._wait(future, poll or self._limit(doing))
        error = future.exception()
        if error is not None and self.group.is_loss(error):
            raise self._lost(error)
        return future.result()

    def _result(
        self,
        future: concurrent.futures.Future,
        doing: str,
        source: RecordSource,
        poll: Callable[[], None],
    ) -> Any:
        self._wait(future, poll)
        error = future.exception()
        if error is None:
            return future.result()
        if self.group.is_loss(error):
            raise self._lost(error)
        raise explain_failure(error, doing, source, self._evaluate.schema) from None

    def _wait(self, future: concurrent.futures.Future, poll: Callable[[], None]) -> None:
        while not concurrent.futures.wait([future], POLL_SECONDS).done:
            if lost := [*self._monitor.lost("worker"), *self._monitor.lost("chief")]:
                raise LostReplicaError(f"{', '.join(map(str, lost))} was lost")
            poll()

    def _limit(self, doing: str) -> Callable[[], None]:
        began = time.monotonic()

        def look() -> None:
            if time.monotonic() - began > self._stall_seconds:
                raise self._stall(doing)

        return look

    def _lost(self, error: BaseException) -> LostReplicaError:
        away = [str(outage) for outage in self._monitor.outages()]
        assert isinstance(error, tf.errors.OpError)
        return LostReplicaError(
            f"{', '.join(away) or 'a replica'} was lost ({failures.first_line(error)})"
        )

    def _stall(self, doing: str) -> RunError:
        away = [
            f"{outage}: {outage.liveness.value}, {outage.liveness.what_to_do}"
            for outage in self._monitor.outages()
        ]
        seen = "; ".join(away) or "every replica answers; look in their logs"
        return RunError(
            f"{doing} has not come on for {self._stall_seconds:.0f} s: {seen}; --stall_seconds "
            "allows more time"
        )
