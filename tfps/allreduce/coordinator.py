"""The chief's loop over leases that all replicas train together."""

import concurrent.futures
import dataclasses
import enum
import functools
import itertools
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import tensorflow as tf

from tfps.allreduce.group import LostReplicaError, ReplicaExecutor
from tfps.allreduce.step import LANE, ReplicaClosures, TrainedRounds
from tfps.cluster import failures
from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.coordinator import (
    POLL_SECONDS,
    Gradients,
    TrainingMeter,
    not_finite,
)
from tfps.data.record_source import Piece, RecordSource
from tfps.errors import RunError, UserError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.leases.bad_record_log import explain_failure
from tfps.leases.lease import Lease, LeaseShare
from tfps.leases.queue import LeaseQueue, QueueState
from tfps.store.parameter_store import ParameterStore
from tfps.store.partitioned_variable import TensorSlice
from tfps.store.run_state import Changes
from tfps.worker.closures import Closures

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Command(enum.StrEnum):
    """What all replicas do next, as the chief commands."""

    SYNC_PARAMETERS = "take over my parameters, slots, state and learning rates"
    SYNC_LEASES = "take over the state of my lease queue, and my learning rates"
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
        self.judged = evaluate.judged
        self._monitor = monitor
        self._stall_seconds = stall_seconds
        self._calls = concurrent.futures.ThreadPoolExecutor(1, "collectives")

    def broadcast(self, command: Command, **details: Any) -> None:
        """Sends a command to all replicas; on the chief."""
        message = json.dumps([command.name, details]).encode()
        self._call(
            f"sending all replicas: {command}",
            lambda: self.group.gather_bytes(message),
        )

    def receive(self, poll: Callable[[], None]) -> tuple[Command, dict[str, Any]]:
        """Waits for the chief's command; elsewhere, while the chief answers. `poll` may raise."""
        doing = "waiting for the chief"
        message, *_ = self._call(doing, lambda: self.group.gather_bytes(b""), poll)
        name, details = json.loads(message)
        return Command[name], details

    def share_parameters(self) -> None:
        """Gives all replicas the chief's parameters, slots and state; all replicas call it."""
        for slice_ in self.store.slices():
            self._call(f"sharing {slice_.name}", functools.partial(self._share, slice_))

    def shares(self, lease: Lease) -> list[LeaseShare]:
        """How the replicas share a lease, by their numbers."""
        return LeaseShare.of(lease, self.group.size)

    def train(self, lease: Lease, poll: Callable[[int, float], None]) -> TrainedRounds:
        """Trains this replica's share of a lease; `poll` gets rounds and the sum of losses."""
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
            gather = functools.partial(self.group.gather_bytes, EvaluatedPiece.pack(mine))
            every = self._call("waiting for what the other replicas evaluate", gather)
            yield from (result for each in every for result in EvaluatedPiece.unpack(each))

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
            f"{doing}: no progress for {self._stall_seconds:.0f} s: {seen}; --stall_seconds "
            "allows more time"
        )


class ReplicaFollower:
    """Trains and evaluates with the chief; its own lease queue assigns what the chief's does."""

    def __init__(
        self,
        replica: Replica,
        fingerprint: dict[str, Any],
        queue: Callable[[QueueState], LeaseQueue],
        pieces: Callable[[], Iterable[Piece]],
    ):
        self._replica = replica
        self._fingerprint = json.loads(json.dumps(fingerprint))  # as the chief's arrive
        self._make_queue = queue
        self._pieces = pieces
        self._queue: LeaseQueue | None = None

    def run(self, poll: Callable[[], None]) -> None:
        """Obeys the chief until a replica is gone; polls several times a second."""
        while True:
            command, details = self._replica.receive(poll)
            if command is Command.SYNC_PARAMETERS:
                self._refuse_other(details["fingerprint"])
                self._replica.share_parameters()
                self._replica.store.set_steps(details["steps"])
                self._take_learning_rates(details["learning_rates"])
                _log.info("took over the chief's parameters, step %d", details["steps"])
            elif command is Command.SYNC_LEASES:
                self._queue = self._make_queue(msgspec.convert(details["state"], QueueState))
                self._take_learning_rates(details["learning_rates"])
            elif command is Command.TRAIN:
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
    """Assigns one lease at a time to all replicas, in rounds; trains the chief's share."""

    def __init__(self, replica: Replica, fingerprint: dict[str, Any]):
        self.meter = TrainingMeter(range(replica.group.size), replica.judged)
        self.replica = replica
        self._fingerprint = fingerprint
        self._are_equal = False

    def train(
        self,
        queue: LeaseQueue,
        pause: Callable[[], bool],
        report: Callable[[TrainingMeter], None],
        due: float = math.inf,
    ) -> None:
        self._share_parameters()
        self.replica.broadcast(
            Command.SYNC_LEASES,
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
        self.replica.broadcast(Command.EVALUATE)
        yield from self.replica.evaluate(pieces)

    def gradients(self, source: RecordSource, lease: Sequence[int]) -> Gradients:
        return self.replica.gradients(source, lease)

    def _share_parameters(self) -> None:
        """Lets all replicas begin with equal parameters: initial values, or a checkpoint's."""
        if not self._are_equal:
            self.replica.broadcast(
                Command.SYNC_PARAMETERS,
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

    def _train(
        self, queue: LeaseQueue, report: Callable[[TrainingMeter], None], seconds: float
    ) -> None:
        rounds = self.meter.lease_length.within(queue.batches_left, 1, seconds)
        batches = rounds * self.replica.group.size
        self.replica.broadcast(Command.TRAIN, batches=batches)
        lease = queue.take(batches)
        assert lease is not None

        def poll(rounds: int, loss_sum: float) -> None:
            self.meter.measure(queue, self._trained(lease, rounds), loss_sum)
            report(self.meter)

        trained = self.replica.train(lease, poll)
        if trained.bad_round >= 0:
            raise not_finite(f"in round {trained.bad_round + 1} of {lease}")
        self._finish(queue, lease, trained)
        self.meter.measure(queue, 0, 0.0)
        report(self.meter)

    def _finish(self, queue: LeaseQueue, lease: Lease, trained: TrainedRounds) -> None:
        queue.finish(lease, lease.records)
        self.meter.finished(trained.loss_sum)
        self.meter.judged(trained.judged)
        self.meter.lease_length.measured(trained.rounds, trained.seconds)
        for index, share in enumerate(self.replica.shares(lease)):
            self.meter.worker_shares.trained(index, share.records, trained.began, trained.seconds)

    def _trained(self, lease: Lease, rounds: int) -> int:
        """Records of a lease that so many rounds have trained."""
        shares = self.replica.shares(lease)
        return sum(min(rounds * lease.batch_size, share.records) for share in shares)
