"""How a worker trains a lease where workers wait for each other."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.barrier import member_state as tokens
from tfps.barrier.barrier import Barrier
from tfps.model.stateless_model import Features, Labels
from tfps.worker.prefetch import ReadBatch
from tfps.worker.step import Step, batch_records

# Step, token, first batch whose loss was not finite or -1, features and labels of the batch held.
State = tuple[tf.Tensor, tf.Tensor, tf.Tensor, Any]


class BarrierTraining:
    """Trains a lease batch by batch: pull, compute, contribute, wait for leave to go on.

    Where a round does not wait for everybody, a batch whose contribution came too late is trained
    again with the parameters of the next round. Elsewhere only a member that was given up comes too
    late. So that nobody else has to ask after each step, its loop ends, and the lease is read again
    from the first batch on that is not recorded.
    """

    def __init__(self, step: Step, barrier: Barrier, unroll: int, may_repeat: bool):
        """Prepares it.

        Args:
            step: Computes a batch's gradients.
            barrier: Takes them, and says when to go on.
            unroll: Steps in one turn of a loop.
            may_repeat: Whether a batch is held until its contribution is taken.
        """
        self._step = step
        self._barrier = barrier
        self._unroll = unroll
        self._may_repeat = may_repeat

    def begin(self, place: tf.Tensor, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Takes a member's place: its first token, and its lease's steps so far."""
        return self._barrier.begin(place, worker)

    def train(
        self,
        token: tf.Tensor,
        steps: tf.Tensor,
        lease: tuple[tf.Tensor, tf.Tensor],
        reader: Callable[[tf.Tensor], Callable[[], ReadBatch]],
        draw: Callable[[tf.Tensor], tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Trains what is left of a lease.

        Args:
            token: The first one.
            steps: Those of the lease that are trained, scalar int64.
            lease: Numbers in the shard of its first batch and of the one after its last, scalar
                int64.
            reader: Given the number of a batch, gives what reads that one and then the next; where
                one may be held, there is one more than are in the lease.
            draw: Gives what random layers draw from in a step.

        Returns:
            The last token, which exists once everything is applied, and the first batch whose loss
            was not finite, or -1.
        """
        first, end = lease

        def more(step: tf.Tensor, token: tf.Tensor, bad_step: tf.Tensor) -> tf.Tensor:
            return _goes_on(step + 1, end, token, bad_step)

        def train_from(step: tf.Tensor, token: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            step, token, bad_step = self._train_from(step, token, end, reader(step), draw)

            def begin_again() -> tuple[tf.Tensor, tf.Tensor]:
                again, steps = self._barrier.begin_again(token)
                return first + steps, again

            has_missed = tf.equal(token[tokens.ROUND], tokens.MISSED)
            step, token = tf.cond(has_missed, begin_again, lambda: (step, token))
            return step, token, bad_step

        state = first + steps, token, tf.constant(-1, tf.int64)
        _, token, bad_step = tf.while_loop(more, train_from, state)
        return token, bad_step

    def _train_from(
        self,
        step: tf.Tensor,
        token: tf.Tensor,
        end: tf.Tensor,
        read: Callable[[], ReadBatch],
        draw: Callable[[tf.Tensor], tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Trains from a batch on to the end, or until it is told to do otherwise."""
        held = _records(read()) if self._may_repeat else ()

        def several(steps: int, *state: Any) -> State:
            for _ in range(steps):
                state = self._turn(read, draw, *state)
            return state

        def more_than(steps: int, step: tf.Tensor, token: tf.Tensor, *state: Any) -> tf.Tensor:
            return _goes_on(step + steps, end, token, state[0])

        state: State = step, token, tf.constant(-1, tf.int64), held
        for steps in (self._unroll, 1):
            more, turns = (functools.partial(each, steps) for each in (more_than, several))
            state = tf.while_loop(more, turns, state)
        step, token, bad_step, _ = state
        return step, token, bad_step

    def _turn(
        self,
        read: Callable[[], ReadBatch],
        draw: Callable[[tf.Tensor], tf.Tensor],
        step: tf.Tensor,
        token: tf.Tensor,
        bad_step: tf.Tensor,
        held: Any,
    ) -> State:
        """One step: the state of the loop, before and after."""
        if self._may_repeat:
            is_taken = token[tokens.TAKEN] > 0
            held = tf.cond(is_taken, lambda: _records(read()), lambda: held)
        features, labels = held or _records(read())
        batch = self._step.pull(features, labels, [token])
        loss, gradients = self._step.gradients(batch, draw(step))
        records, loss = batch_records(labels), tf.cast(loss, tf.float64)
        trained = tf.stack([0.0, 1.0, 0.0, loss * tf.cast(records, tf.float64)])
        token = self._barrier.contribute(token, gradients, records, trained)
        failed = (bad_step < 0) & ~tf.math.is_finite(loss)
        bad_step = tf.where(failed, step, bad_step)
        return step + (token[tokens.TAKEN] if self._may_repeat else 1), token, bad_step, held


def _goes_on(after: tf.Tensor, end: tf.Tensor, token: tf.Tensor, bad_step: tf.Tensor) -> tf.Tensor:
    """Whether a lease goes on to a batch; a token of no round ends its loop."""
    return (after <= end) & (bad_step < 0) & (token[tokens.ROUND] >= 0)


def _records(read: ReadBatch) -> tuple[Features, Labels]:
    return read.features, read.labels
