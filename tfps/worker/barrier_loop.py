"""How a worker trains a lease where workers wait for each other."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.barrier.barrier import Barrier
from tfps.barrier.messages import ATTEMPT, ROUND, TAKEN, Answer
from tfps.leases.progress import Attempt
from tfps.model.stateless_model import Features, Labels
from tfps.profiling import scopes
from tfps.worker.lease_batches import LeaseBatches
from tfps.worker.loop import UNROLL, Outcome, iterate, note_failure, trained_batch
from tfps.worker.prefetch import ReadBatch
from tfps.worker.step import Step, batch_records

# Step, token, first batch whose loss was not finite or -1, features and labels of the batch held.
State = tuple[tf.Tensor, tf.Tensor, tf.Tensor, Any]


class BarrierLoop:
    """Trains a lease batch by batch: pull, compute, contribute, wait for leave to go on.

    Where rounds do not wait for everybody, a batch whose contribution came too late is held, and
    trained again with the parameters of the next round. Elsewhere only a member that was given up
    comes too late. No batch is held for that: the loop over batches ends, and the lease is read
    again from the first batch that is not recorded.
    """

    def __init__(
        self, step: Step, barrier: Barrier, may_repeat: bool = False, unroll: int = UNROLL
    ):
        """Makes the loop of all leases.

        Args:
            step: Computes a batch's gradients.
            barrier: Takes gradients, and says when to go on.
            may_repeat: Whether a batch is held until its contribution is taken.
            unroll: Steps in one iteration of the loop.
        """
        self._step = step
        self._barrier = barrier
        self._may_repeat = may_repeat
        self._unroll = unroll

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
        """See `Loop`."""
        token, steps = self._barrier.begin(batches.place, worker)
        attempt = token[ATTEMPT]

        def goes_on(step: tf.Tensor, token: tf.Tensor, bad_step: tf.Tensor) -> tf.Tensor:
            return _goes_on(step + 1, batches.end, token, bad_step)

        def train_from(step: tf.Tensor, token: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            step, token, bad_step = self._train_from(step, token, batches)

            def begin_again() -> tuple[tf.Tensor, tf.Tensor]:
                again, steps = self._barrier.begin_again(token)
                return batches.first + steps, again

            begins_again = tf.equal(token[ROUND], Answer.BEGIN_AGAIN)
            step, token = tf.cond(begins_again, begin_again, lambda: (step, token))
            return step, token, bad_step

        state = batches.begin_of(Attempt(attempt, steps)), token, tf.constant(-1, tf.int64)
        _, token, bad_step = tf.while_loop(goes_on, train_from, state)
        with tf.control_dependencies([token]):  # which exists once everything is applied
            return Outcome(attempt, tf.identity(bad_step))

    def _train_from(
        self,
        step: tf.Tensor,
        token: tf.Tensor,
        batches: LeaseBatches,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Trains from a batch on to the end, or until it is told to do otherwise."""
        # Where one is held, one more is read than the lease has.
        read = batches.reader(step, 1 if self._may_repeat else 0)
        held = _records(read()) if self._may_repeat else ()

        def train(steps: int, *state: Any) -> State:
            for _ in range(steps):
                state = self._train_next(read, batches, *state)
            return state

        def goes_on(steps: int, step: tf.Tensor, token: tf.Tensor, *state: Any) -> tf.Tensor:
            return _goes_on(step + steps, batches.end, token, state[0])

        state: State = step, token, tf.constant(-1, tf.int64), held
        step, token, bad_step, _ = iterate(self._unroll, goes_on, train, state)
        return step, token, bad_step

    def _train_next(
        self,
        read: Callable[[], ReadBatch],
        batches: LeaseBatches,
        step: tf.Tensor,
        token: tf.Tensor,
        bad_step: tf.Tensor,
        held: Any,
    ) -> State:
        """Trains a batch: the state of the loop, before and after."""
        if self._may_repeat:
            is_taken = token[TAKEN] > 0
            held = tf.cond(is_taken, lambda: _records(read()), lambda: held)
        features, labels = held or _records(read())
        batch = self._step.pull(features, labels, [token])
        loss, gradients = self._step.gradients(batch, batches.draw(step))
        records = batch_records(features, labels) // batches.examples_per_record
        loss = tf.cast(loss, tf.float64)
        with tf.name_scope(scopes.PUSH):
            trained = trained_batch(loss, records)
            token = self._barrier.contribute(token, gradients, records, trained)
        bad_step = note_failure(bad_step, step, loss)
        return step + (token[TAKEN] if self._may_repeat else 1), token, bad_step, held


def _goes_on(after: tf.Tensor, end: tf.Tensor, token: tf.Tensor, bad_step: tf.Tensor) -> tf.Tensor:
    """Whether a lease goes on to a batch; a token of no round ends its loop."""
    return (after <= end) & (bad_step < 0) & (token[ROUND] >= 0)


def _records(read: ReadBatch) -> tuple[Features, Labels]:
    return read.features, read.labels
