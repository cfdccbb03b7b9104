"""How a worker trains a lease by itself, a few steps at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.leases.progress import LeaseProgress
from tfps.model.stateless_model import Features, Labels, Lookup
from tfps.profiling import scopes
from tfps.store.parameter_store import ParameterStore
from tfps.worker.local_copy import CopiedRows, LocalCopy, find_rows
from tfps.worker.loop import (
    LeaseBatches,
    Outcome,
    ReadBatch,
    iterate,
    note_failure,
    restored,
    tensors_of,
)
from tfps.worker.step import Batch, Step

# Number of the batch, first batch whose loss was not finite or -1, whether the lease is held, what
# exchanges took so far, the batches held.
State = tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, list[tf.Tensor]]


class _Held(NamedTuple):
    """The batches between a pull and its push, with what they ask of the parameters."""

    records: list[tuple[Features, Labels]]
    lookups: list[list[Lookup]]
    rows: list[CopiedRows]


class LocalSgdLoop:
    """Pulls what the next batches need, trains them one after the other, pushes the difference.

    While it trains them it reads those after them, and while it pushes it finds out what these ask
    for. Known as local SGD (Stich, ICLR 2019), and for parameter servers as Geo-SGD.
    """

    def __init__(
        self,
        step: Step,
        store: ParameterStore,
        progress: LeaseProgress,
        workers: int,
        steps: int,
        is_timed: bool = False,
    ):
        self._step = step
        self._store = store
        self._progress = progress
        self._workers = workers
        self._steps = steps
        self._is_timed = is_timed

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
        attempt = self._progress.begin(batches.place, worker)
        begin = batches.begin_of(attempt)
        read = batches.reader(begin, self._steps)
        lease = self._progress.lane_of(batches.place), attempt.number
        template = [self._found([_records(read()) for _ in range(self._steps)])]

        def goes_on(
            steps: int, number: tf.Tensor, bad_step: tf.Tensor, holds: tf.Tensor, *_: object
        ) -> tf.Tensor:
            return holds & (number + steps <= batches.end) & (bad_step < 0)

        def train(
            steps: int,
            number: tf.Tensor,
            bad_step: tf.Tensor,
            _: tf.Tensor,
            times: tf.Tensor,
            tensors: list[tf.Tensor],
        ) -> State:
            holds = self._progress.holds(*lease)
            [held] = restored(template, tensors)
            now = held if steps == self._steps else self._found(held.records[:steps])
            watch = _Watch(self._is_timed and steps == self._steps)
            watch.look([number])
            copy, losses = self._copied(now), tf.zeros([], tf.float64)
            watch.look(copy.arrived())
            following = []
            for index in range(steps):
                loss, records = self._train_next(copy, now, index, batches, number + index)
                # Not before: what an exchange asks for would wait for all batches of the next one.
                with tf.control_dependencies([loss]):
                    following.append(_records(read()) if now is held else held.records[index])
                losses += loss * tf.cast(records, tf.float64)
                bad_step = note_failure(bad_step, number + index, loss)
            watch.look([losses])
            change, pushed = tf.stack([0.0, float(steps), 0.0, losses]), copy.push()
            watch.look(pushed)
            self._progress.advance(*lease, change, pushed)
            if now is held:
                held = self._found(following)
            else:
                held = held._replace(records=[*held.records[steps:], *following])
            return number + steps, bad_step, holds, watch.add_to(times), tensors_of([held])

        times = tf.zeros([3], tf.float64)
        none = tf.constant(-1, tf.int64)
        state: State = begin, none, tf.constant(True), times, tensors_of(template)
        _, bad_step, _, times, _ = iterate(self._steps, goes_on, train, state)
        return Outcome(attempt.number, bad_step, times)

    def _found(self, records: Sequence[tuple[Features, Labels]]) -> _Held:
        """Batches with what they ask of the parameters."""
        with tf.name_scope(scopes.PULL):
            lookups = [self._step.lookups(*each) for each in records]
            return _Held(list(records), lookups, find_rows(self._store, lookups))

    def _copied(self, held: _Held) -> LocalCopy:
        """Pulls what batches ask for."""
        return LocalCopy(self._store, self._workers, held.lookups, held.rows)

    def _train_next(
        self, copy: LocalCopy, held: _Held, index: int, batches: LeaseBatches, number: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Makes a batch's step by place and number; its loss, scalar float64, and records."""
        batch = Batch(*held.records[index], copy.pulled(index))
        loss, gradients = self._step.gradients(batch, batches.draw(number))
        copy.update(index, gradients)
        return tf.cast(loss, tf.float64), batch.records // batches.examples_per_record


def _records(read: ReadBatch) -> tuple[Features, Labels]:
    return read.features, read.labels


class _Watch:
    """Takes the time in a graph before and after a pull and a push, if exchanges are timed."""

    def __init__(self, is_on: bool):
        self._is_on = is_on
        self._seen: list[tf.Tensor] = []

    def look(self, after: Sequence[tf.Tensor | tf.Operation]) -> None:
        """Takes the time once something is there."""
        if self._is_on:
            with tf.control_dependencies([*after, *self._seen[-1:]]):
                self._seen.append(tf.timestamp())

    def add_to(self, times: tf.Tensor) -> tf.Tensor:
        """Adds an exchange to what exchanges took so far, as `Outcome` has it."""
        if not self._is_on:
            return times
        begun, pulled, computed, pushed = self._seen
        exchange = (pulled - begun) + (pushed - computed)
        return times + tf.stack([tf.constant(1.0, tf.float64), exchange, computed - pulled])
