"""How a worker trains a lease with several batches in each exchange with the ps."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.leases.progress import LeaseProgress
from tfps.profiling import scopes
from tfps.store.batch_run import BatchRun
from tfps.worker.lease_batches import LeaseBatches
from tfps.worker.loop import Outcome, iterate, note_failure, trained_batch
from tfps.worker.prefetch import ReadBatch
from tfps.worker.step import Batch, Step

# Number of the batch, first batch whose loss was not finite or -1, what has been pushed that is not
# recorded yet.
State = tuple[Any, ...]


class ExchangeLoop:
    """Pulls for a few batches, computes their gradients, and pushes all of them, kept apart.

    The last batches of a lease, too few for an exchange, have one each. What has been trained is
    recorded as `AsyncLoop` does it.
    """

    def __init__(self, step: Step, progress: LeaseProgress, batches: int, unroll: int):
        """Makes the loop of all leases.

        Args:
            unroll: Steps, at least, in one iteration of the loop.
        """
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
