"""Adam on the ps."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.store.update_rule import Update, UpdateRule


class Adam(UpdateRule):
    """`keras.optimizers.Adam`; for tables its lazy form, which leaves untouched rows alone.

    Moments and bias correction are those of Kingma and Ba (2015), section 2, in the order Keras
    uses.
    """

    slots = ("momentum", "velocity")

    def dense(self, update: Update) -> None:
        """See `UpdateRule`."""
        beta1_power, beta2_power = self._powers(update.step)
        tf.raw_ops.ResourceApplyAdam(
            var=update.variable.handle,
            m=update.slots[0].handle,
            v=update.slots[1].handle,
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=self.learning_rate(update.step),
            beta1=self.config["beta_1"],
            beta2=self.config["beta_2"],
            epsilon=self.config["epsilon"],
            grad=update.gradient,
        )

    def sparse(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """See `UpdateRule`."""
        beta1_power, beta2_power = self._powers(step)
        momentum = slots[0] + (gradient - slots[0]) * (1.0 - self.config["beta_1"])
        velocity = slots[1] + (tf.square(gradient) - slots[1]) * (1.0 - self.config["beta_2"])
        rate = self.learning_rate(step) * tf.sqrt(1.0 - beta2_power) / (1.0 - beta1_power)
        change = rate * momentum / (tf.sqrt(velocity) + self.config["epsilon"])
        return [rows - change, momentum, velocity]

    def _powers(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.cast(step + 1, tf.float32)
        return tf.pow(self.config["beta_1"], count), tf.pow(self.config["beta_2"], count)
