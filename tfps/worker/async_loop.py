"""How a worker trains a lease where nobody waits for anybody."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.leases.progress import LeaseProgress
from tfps.worker.lease_batches import LeaseBatches
from tfps.worker.loop import UNROLL, Outcome, iterate, note_failure, trained_batch
from tfps.worker.prefetch import BatchPrefetcher
from tfps.worker.step import Step

# Number of the batch, what the batch before has trained, first batch whose loss was not finite or
# -1, and the batches that are held.
State = tuple[Any, ...]


class AsyncLoop:
    """Pulls, computes and pushes batch by batch; parameters may be pulled for batches ahead.

    What a batch has trained is recorded once its push is known to have arrived, which the pull of a
    later batch tells.
    """

    def __init__(
        self, step: Step, progress: LeaseProgress, pipeline_depth: int = 0, unroll: int = UNROLL
    ):
        """Makes the loop of all leases.

        Args:
            step: Trains one batch.
            progress: Where each lease's progress is kept.
            pipeline_depth: Batches for which parameters are pulled ahead.
            unroll: Steps in one iteration of the loop.
        """
        self._step = step
        self._progress = progress
        self._pipeline_depth = pipeline_depth
        self._unroll = unroll

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
        """See `Loop`."""
        attempt = self._progress.begin(batches.place, worker)
        begin = batches.begin_of(attempt)
        # Several steps are only begun with batches of which it is known that they can be read.
        unpulled = self._unroll if batches.may_be_bad else 0
        read = batches.reader(begin, self._pipeline_depth)
        ahead = BatchPrefetcher(read, self._step.pull, self._pipeline_depth, unpulled)
        held = self._progress.lane_of(batches.place), attempt.number
        record = functools.partial(self._progress.advance, *held)

        def train(steps: int, holds: tf.Tensor, *state: tf.Tensor) -> State:
            if steps == self._unroll:
                holds = self._progress.holds(*held)
            for _ in range(steps):
                state = self._train_next(batches, ahead, record, steps == 1, state)
            return holds, *state

        def goes_on(steps: int, holds: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
            number, _, bad_step, *held = state
            left = holds & (number + steps <= batches.end) & (bad_step < 0)
            return left & ahead.follow(held, number, steps) if batches.may_be_bad else left

        nothing = tf.zeros([4], tf.float64)
        state: State = tf.constant(True), begin, nothing, tf.constant(-1, tf.int64), *ahead.tensors
        _, _, unrecorded, bad_step, *_ = iterate(self._unroll, goes_on, train, state)
        record(unrecorded)
        return Outcome(attempt.number, bad_step)

    def _train_next(
        self,
        batches: LeaseBatches,
        ahead: BatchPrefetcher,
        record: Callable[[tf.Tensor], None],
        is_single: bool,
        state: State,
    ) -> State:
        """Trains the batch that is due: the state of the loop, before and after."""
        number, unrecorded, bad_step, *held = state
        due, newest, held = ahead.next(held)
        # What the newest pull brought was read after the pushes of the step before.
        with tf.control_dependencies(newest.batch.arrived()):
            pushed = tf.identity(unrecorded)
        record(pushed)
        records, draw = due.records // batches.examples_per_record, batches.draw(number)

        def train() -> tf.Tensor:
            return self._step.train(due.batch, draw)

        may_be_empty = is_single and batches.may_be_bad
        loss = tf.cond(records > 0, train, lambda: tf.zeros([])) if may_be_empty else train()
        loss = tf.cast(loss, tf.float64)
        trained = trained_batch(loss, records, 0.0 if due.bad is None else _float64(due.bad))
        return number + 1, trained, note_failure(bad_step, number, loss), *held


def _float64(number: tf.Tensor) -> tf.Tensor:
    return tf.cast(number, tf.float64)
