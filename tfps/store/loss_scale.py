"""The dynamic loss scale, which keeps float16 gradients from vanishing."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.model.loss import LossScaling
from tfps.store.partitioned_variable import TensorSlice


class LossScale:
    """The loss scale of a run, on a ps.

    The algorithm is that of `keras.optimizers.LossScaleOptimizer`: a step whose gradients are not
    all finite changes no parameter and halves the scale; `growth_steps` finite ones in a row double
    it. Several workers may be at work on one scale: a worker divides by the scale that it pulled,
    and halves or doubles only a scale that is still the one it used. No lock is taken, since what
    concurrent updates can lose of each other is a count or a change that the next step makes.
    """

    def __init__(self, scaling: LossScaling, device: str):
        self._scaling = scaling
        self._device = device
        with tf.device(device):
            start = tf.constant([scaling.initial_scale, 0.0, 0.0])
            self._values = tf.Variable(start, trainable=False)  # scale, good steps, skipped steps

    def pull(self, after: Sequence[tf.Tensor] = ()) -> tf.Tensor:
        """The scale, scalar float32."""
        with tf.device(self._device), tf.control_dependencies(after):
            return self._values.read_value()[0]

    @staticmethod
    def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        """Whether every value of every gradient is finite, scalar bool."""
        return tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(g)) for g in gradients]))

    def update(self, used: tf.Tensor, finite: tf.Tensor) -> tf.Operation:
        """Adapts the scale to a step's outcome.

        Args:
            finite: Whether all its gradients are finite, scalar bool.
        """
        with tf.device(self._device):
            values = self.stepped(self._values.read_value(), used, finite)
            return self._values.assign(values, read_value=False)

    def pull_whole(self) -> tf.Tensor:
        """The scale, good steps in a row and skipped steps, `[3]` float32."""
        with tf.device(self._device):
            return self._values.read_value()

    def stepped(self, values: tf.Tensor, used: tf.Tensor, finite: tf.Tensor) -> tf.Tensor:
        """What a step makes of what `pull_whole` returned; the arguments are those of `update`."""
        scale, good, skipped = tf.unstack(values)
        is_current = tf.equal(scale, used)
        full = good + 1 >= self._scaling.growth_steps
        grown = tf.where(full & is_current, scale * 2.0, scale)
        halved = tf.where(is_current, scale * 0.5, scale)
        return tf.where(
            finite,
            tf.stack([grown, tf.where(full, 0.0, good + 1), skipped]),
            tf.stack([halved, 0.0, skipped + 1]),
        )

    def push(self, begun: tf.Tensor, ended: tf.Tensor) -> tf.Operation:
        """Makes the steps that a worker has made by itself.

        A scale that others have changed meanwhile stays as it is: they have found out the same.
        """
        both = tf.stack([begun, ended])
        with tf.device(self._device):
            begun, ended = tf.unstack(both)
            now = self._values.read_value()
            skipped = now[2] + ended[2] - begun[2]
            is_current = tf.equal(now[0], begun[0])
            kept = tf.stack([now[0], tf.where(ended[2] > begun[2], 0.0, now[1]), skipped])
            taken = tf.stack([ended[0], ended[1], skipped])
            return self._values.assign(tf.where(is_current, taken, kept), read_value=False)

    def read(self) -> tuple[float, int]:
        """The scale and the number of steps skipped so far, on the chief."""
        scale, _, skipped = self._values.numpy()
        return float(scale), int(skipped)

    def slice_(self) -> TensorSlice:
        """What a checkpoint holds of the scale."""
        return TensorSlice("loss_scale", (3,), 0, 3, self._device, self._values)
