"""How a worker trains a lease a few steps at a time in its own memory."""

import functools
from collections.abc import Callable

import tensorflow as tf

from tfps.store.parameter_store import ParameterStore
from tfps.worker.local_sgd import LocalCopy
from tfps.worker.prefetch import ReadBatch
from tfps.worker.step import Batch, Step, batch_records

# Step, first batch whose loss was not finite or -1, whether the lease is still held.
State = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class LocalTraining:
    """Pulls what the next batches need, trains them one after the other, pushes the difference.

    Known as local SGD (Stich, ICLR 2019), and for parameter servers as Geo-SGD.
    """

    def __init__(self, step: Step, store: ParameterStore, workers: int, steps: int):
        """Prepares it.

        Args:
            step: Computes a batch's gradients.
            store: Where the parameters are.
            workers: How many do the same.
            steps: Between a pull and its push.
        """
        self._step = step
        self._store = store
        self._workers = workers
        self._steps = steps

    def train(
        self,
        read: Callable[[], ReadBatch],
        begun: tf.Tensor,
        end: tf.Tensor,
        draw: Callable[[tf.Tensor], tf.Tensor],
        holds: Callable[[], tf.Tensor],
        record: Callable[[tf.Tensor], None],
    ) -> tf.Tensor:
        """Trains what is left of a lease; what is left of it last, one step at a time.

        Args:
            read: Reads the next batch.
            begun: Number in the shard of the first batch to be trained, scalar int64.
            end: Number of the one after the last.
            draw: Gives what random layers draw from in a step.
            holds: Tells whether this worker still holds the lease; if not, training ends.
            record: Adds `[4]` float64 to the lease's progress.

        Returns:
            The first batch whose loss was not finite, or -1, once everything is recorded.
        """

        def more(steps: int, step: tf.Tensor, bad_step: tf.Tensor, held: tf.Tensor) -> tf.Tensor:
            return held & (step + steps <= end) & (bad_step < 0)

        def several(steps: int, step: tf.Tensor, bad_step: tf.Tensor, _: tf.Tensor) -> State:
            held = holds()
            return *self._several(read, draw, record, steps, step, bad_step), held

        state: State = begun, tf.constant(-1, tf.int64), tf.constant(True)
        for steps in dict.fromkeys([self._steps, 1]):
            state = tf.while_loop(
                functools.partial(more, steps), functools.partial(several, steps), state
            )
        return state[1]

    def _several(
        self,
        read: Callable[[], ReadBatch],
        draw: Callable[[tf.Tensor], tf.Tensor],
        record: Callable[[tf.Tensor], None],
        steps: int,
        step: tf.Tensor,
        bad_step: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """A pull, steps and a push: the state of the loop, before and after."""
        batches = [read() for _ in range(steps)]
        lookups = [self._step.lookups(batch.features, batch.labels) for batch in batches]
        copy = LocalCopy(self._store, self._workers, lookups)
        total = tf.zeros([], tf.float64)
        for number, batch in enumerate(batches):
            ready = Batch(batch.features, batch.labels, copy.pulled(number))
            loss, gradients = self._step.gradients(ready, draw(step + number))
            copy.update(number, gradients)
            records, loss = batch_records(batch.labels), tf.cast(loss, tf.float64)
            total += loss * tf.cast(records, tf.float64)
            failed = (bad_step < 0) & ~tf.math.is_finite(loss)
            bad_step = tf.where(failed, step + number, bad_step)
        with tf.control_dependencies(copy.push()):
            record(tf.stack([0.0, float(steps), 0.0, total]))
        return step + steps, bad_step
