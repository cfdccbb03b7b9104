"""How a worker trains a lease where nobody waits for anybody."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.leases.progress import LeaseProgress
from tfps.profiling import scopes
from tfps.store.batch_run import BatchRun
from tfps.store.messages import Note
from tfps.worker.loop import (
    UNROLL,
    BatchPrefetcher,
    LeaseBatches,
    Outcome,
    ReadBatch,
    iterate,
    note_failure,
    trained_batch,
)
from tfps.worker.step import Batch, Step

# Of AsyncLoop: number of the batch, first batch whose loss was not finite or -1, what has been
# pushed that is not recorded yet. Of ExchangeLoop: number of the batch, what the batch before has
# trained if that is not recorded yet, first batch whose loss was not finite or -1, held batches.
State = tuple[Any, ...]


class ExchangeLoop:
    """Pulls for a few batches, computes their gradients, and pushes all of them, kept apart.

    The last batches of a lease, too few for an exchange, have one each. What has been trained is
    recorded as `AsyncLoop` does it.
    """

    def __init__(self, step: Step, progress: LeaseProgress, batches: int, unroll: int):
        self._step = step
        self._progress = progress
        self._batches = batches
        self._unroll = -(-unroll // batches) * batches
        self._has_one_ps = len(step.store.devices) == 1

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
        attempt = self._progress.begin(batches.place, worker)
        begin = batches.begin_of(attempt)
        read = batches.reader(begin)
        lease = self._progress.lane_of(batches.place), attempt.number

        def goes_on(steps: int, holds: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
            number, bad_step, _ = state
            return holds & (number + steps <= batches.end) & (bad_step < 0)

        def train(steps: int, holds: tf.Tensor, *state: tf.Tensor) -> State:
            if steps == self._unroll:
                holds = self._progress.holds(*lease)
            count = min(steps, self._batches)
            for _ in range(steps // count):
                ready = [read() for _ in range(count)]
                state = self._exchange(ready, batches, lease, state)
            return holds, *state

        nothing = tf.zeros([4], tf.float64)
        state: State = tf.constant(True), begin, tf.constant(-1, tf.int64), nothing
        _, _, bad_step, unrecorded = iterate(self._unroll, goes_on, train, state)
        if not self._has_one_ps:
            self._progress.advance(*lease, unrecorded)
        return Outcome(attempt.number, bad_step)

    def _exchange(
        self,
        ready: Sequence[ReadBatch],
        batches: LeaseBatches,
        lease: tuple[tf.Tensor, tf.Tensor],
        state: State,
    ) -> State:
        """A pull, the gradients of some batches and a push: the state, before and after."""
        number, bad_step, unrecorded = state
        with tf.name_scope(scopes.PULL):
            run = BatchRun(
                self._step.store, [self._step.lookups(each.features, each.labels) for each in ready]
            )
        if not self._has_one_ps:
            # What was pulled was read after the pushes of the exchange before.
            with tf.control_dependencies(run.arrived()):
                pushed = tf.identity(unrecorded)
            self._progress.advance(*lease, pushed)
        found, trained = [], tf.zeros([4], tf.float64)
        for index, (each, pulled) in enumerate(zip(ready, run.pulled, strict=True)):
            batch = Batch(each.features, each.labels, pulled)
            loss, gradients = self._step.gradients(batch, batches.draw(number + index))
            records = each.records // batches.examples_per_record
            loss = tf.cast(loss, tf.float64)
            trained += trained_batch(loss, records)
            bad_step = note_failure(bad_step, number + index, loss)
            found.append(gradients)
        with tf.name_scope(scopes.PUSH):
            run.push(found, self._progress.note(*lease, trained) if self._has_one_ps else None)
        return number + len(ready), bad_step, trained


class AsyncLoop:
    """Pulls, computes and pushes batch by batch; parameters may be pulled for batches ahead.

    One ps records what a batch has trained when it has applied its push, with which the numbers
    travel. Of several none knows when the others have: there a batch is recorded once its push is
    known to have arrived everywhere, which the pull of a later batch shows.
    """

    def __init__(
        self, step: Step, progress: LeaseProgress, pipeline_depth: int = 0, unroll: int = UNROLL
    ):
        self._step = step
        self._progress = progress
        self._pipeline_depth = pipeline_depth
        self._unroll = unroll
        self._has_one_ps = len(step.store.devices) == 1

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
        attempt = self._progress.begin(batches.place, worker)
        begin = batches.begin_of(attempt)
        # Several steps are only begun with batches that are known to be readable.
        unpulled = self._unroll if batches.may_be_bad else 0
        read = batches.reader(begin, self._pipeline_depth)
        ahead = BatchPrefetcher(read, self._step.pull, self._pipeline_depth, unpulled)
        lease = self._progress.lane_of(batches.place), attempt.number

        def train(steps: int, holds: tf.Tensor, *state: tf.Tensor) -> State:
            if steps == self._unroll:
                holds = self._progress.holds(*lease)
            for _ in range(steps):
                state = self._train_next(batches, ahead, lease, steps == 1, state)
            return holds, *state

        def goes_on(steps: int, holds: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
            number, _, bad_step, *held = state
            left = holds & (number + steps <= batches.end) & (bad_step < 0)
            return left & ahead.follow(held, number, steps) if batches.may_be_bad else left

        nothing = tf.zeros([4], tf.float64)
        state: State = tf.constant(True), begin, nothing, tf.constant(-1, tf.int64), *ahead.tensors
        _, _, unrecorded, bad_step, *_ = iterate(self._unroll, goes_on, train, state)
        if not self._has_one_ps:
            self._progress.advance(*lease, unrecorded)
        return Outcome(attempt.number, bad_step)

    def _train_next(
        self,
        batches: LeaseBatches,
        ahead: BatchPrefetcher,
        lease: tuple[tf.Tensor, tf.Tensor],
        is_single: bool,
        state: State,
    ) -> State:
        """Trains the batch that is due: the state of the loop, before and after."""
        number, unrecorded, bad_step, *held = state
        due, newest, held = ahead.next(held)
        if not self._has_one_ps:
            # What the newest pull brought was read after the pushes of the step before.
            with tf.control_dependencies(newest.batch.arrived()):
                pushed = tf.identity(unrecorded)
            self._progress.advance(*lease, pushed)
        records, draw = due.records // batches.examples_per_record, batches.draw(number)
        bad = 0.0 if due.bad is None else tf.cast(due.bad, tf.float64)

        def trained(loss: tf.Tensor) -> tf.Tensor:
            return trained_batch(tf.cast(loss, tf.float64), records, bad)

        def noted(loss: tf.Tensor) -> Note:
            return self._progress.note(*lease, trained(loss))

        def train() -> tf.Tensor:
            return self._step.train(due.batch, draw, noted if self._has_one_ps else None)

        def pass_over() -> tf.Tensor:
            loss = tf.zeros([])
            if self._has_one_ps:
                self._progress.advance(*lease, trained(loss))
            return loss

        may_be_empty = is_single and batches.may_be_bad
        loss = tf.cond(records > 0, train, pass_over) if may_be_empty else train()
        return number + 1, trained(loss), note_failure(bad_step, number, loss), *held
