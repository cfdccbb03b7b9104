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

    def pull(self) -> tf.Tensor:
        """The scale, scalar float32."""
        with tf.device(self._device):
            return self._values.read_value()[0]

    @staticmethod
    def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        """Whether every value of every gradient is finite, scalar bool."""
        return tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(g)) for g in gradients]))

    def update(self, used: tf.Tensor, finite: tf.Tensor) -> None:
        """Adapts the scale to a step's outcome.

        Args:
            used: The scale that the step's loss was multiplied by.
            finite: Whether all its gradients are finite, scalar bool.
        """
        with tf.device(self._device):
            scale, good, skipped = tf.unstack(self._values.read_value())
            is_current = tf.equal(scale, used)
            full = good + 1 >= self._scaling.growth_steps
            grown = tf.where(full & is_current, scale * 2.0, scale)
            halved = tf.where(is_current, scale * 0.5, scale)
            self._values.assign(
                tf.where(
                    finite,
                    tf.stack([grown, tf.where(full, 0.0, good + 1), skipped]),
                    tf.stack([halved, 0.0, skipped + 1]),
                ),
                read_value=False,
            )

    def read(self) -> tuple[float, int]:
        """The scale and the number of steps skipped so far, on the chief."""
        scale, _, skipped = self._values.numpy()
        return float(scale), int(skipped)

    def slice_(self) -> TensorSlice:
        """What a checkpoint holds of the scale."""
        return TensorSlice("loss_scale", (3,), 0, 3, self._device, self._values)
