"""How a worker trains a lease where workers wait for each other."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.barrier.barrier import Barrier
from tfps.barrier.messages import ATTEMPT, ROUND, TAKEN, Answer
from tfps.leases.progress import Attempt
from tfps.profiling import scopes
from tfps.worker.loop import (
    UNROLL,
    LeaseBatches,
    Outcome,
    iterate,
    note_failure,
    restored,
    tensors_of,
    trained_batch,
)
from tfps.worker.step import FoundBatch, Step

# Step, token, first batch whose loss was not finite or -1, the batches held.
State = tuple[tf.Tensor, tf.Tensor, tf.Tensor, list[tf.Tensor]]


class BarrierLoop:
    """Trains a lease batch by batch: pull, compute, contribute, wait for permission to continue.

    While it waits it reads the next batch and finds out what that asks for. Parameters may be
    pulled for batches ahead where no round makes them: one more with each permission to continue.

    Where rounds do not wait for everybody, a batch whose contribution came too late is held, and
    trained again with the parameters of the next round. Elsewhere only a member that was given up
    comes too late. No batch is held for that: the loop over batches ends, and the lease is read
    again from the first batch that is not recorded.
    """

    def __init__(
        self,
        step: Step,
        barrier: Barrier,
        may_repeat: bool = False,
        pipeline_depth: int = 0,
        unroll: int = UNROLL,
    ):
        """`may_repeat` holds a batch until it is taken; then `pipeline_depth` is 0."""
        self._step = step
        self._barrier = barrier
        self._may_repeat = may_repeat
        self._pipeline_depth = pipeline_depth
        self._unroll = unroll

    def train(self, batches: LeaseBatches, worker: tf.Tensor) -> Outcome:
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
        """Trains from a batch to the end, or until its token says otherwise."""
        # As many more are read than the lease has.
        read = batches.reader(step, 1 + self._pipeline_depth)

        def find() -> FoundBatch:
            each = read()
            return self._step.find(each.features, each.labels)

        ahead = [self._step.pull_found(find(), [token]) for _ in range(self._pipeline_depth)]
        template = [*ahead, find()]

        def train(steps: int, *state: Any) -> State:
            for _ in range(steps):
                state = self._train_next(find, template, batches, *state)
            return state

        def goes_on(steps: int, step: tf.Tensor, token: tf.Tensor, *state: Any) -> tf.Tensor:
            return _goes_on(step + steps, batches.end, token, state[0])

        state: State = step, token, tf.constant(-1, tf.int64), tensors_of(template)
        step, token, bad_step, _ = iterate(self._unroll, goes_on, train, state)
        return step, token, bad_step

    def _train_next(
        self,
        find: Callable[[], FoundBatch],
        template: list[Any],
        batches: LeaseBatches,
        step: tf.Tensor,
        token: tf.Tensor,
        bad_step: tf.Tensor,
        held: list[tf.Tensor],
    ) -> State:
        """Trains a batch: the state of the loop, before and after."""
        *ahead, found = restored(template, held)
        pulled = [*ahead, self._step.pull_found(found, [token])]
        loss, gradients = self._step.gradients(pulled[0], batches.draw(step))
        records = pulled[0].records // batches.examples_per_record
        loss = tf.cast(loss, tf.float64)
        with tf.name_scope(scopes.PUSH):
            trained = trained_batch(loss, records)
            token = self._barrier.contribute(token, gradients, records, trained)
        if self._may_repeat:
            held = tf.cond(token[TAKEN] > 0, lambda: tensors_of([find()]), lambda: held)
        else:
            # Not before: all of an iteration's batches would be read before its first pull.
            with tf.control_dependencies([*gradients.dense[:1], *gradients.rows[:1]]):
                held = tensors_of([*pulled[1:], find()])
        bad_step = note_failure(bad_step, step, loss)
        return step + (token[TAKEN] if self._may_repeat else 1), token, bad_step, held


def _goes_on(after: tf.Tensor, end: tf.Tensor, token: tf.Tensor, bad_step: tf.Tensor) -> tf.Tensor:
    """Whether a lease continues with a batch; a token of no round ends its loop."""
    return (after <= end) & (bad_step < 0) & (token[ROUND] >= 0)
