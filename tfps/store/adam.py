"""Adam on the ps."""

import tensorflow as tf

from tfps.store.update_rule import Update, UpdateRule


class Adam(UpdateRule):
    """`keras.optimizers.Adam`; for tables its lazy form, which leaves untouched rows alone.

    There is no sparse kernel, so rows are gathered, updated and scattered on the ps. Moments and
    bias correction are those of Kingma and Ba (2015), section 2, in the order Keras uses.
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

    def sparse(self, update: Update, rows: tf.Tensor) -> None:
        """See `UpdateRule`."""
        beta1_power, beta2_power = self._powers(update.step)
        gradient, (momentum_slot, velocity_slot) = update.gradient, update.slots
        momentum = _moved(momentum_slot, rows, gradient, self.config["beta_1"])
        velocity = _moved(velocity_slot, rows, tf.square(gradient), self.config["beta_2"])
        rate = self.learning_rate(update.step) * tf.sqrt(1.0 - beta2_power) / (1.0 - beta1_power)
        tf.raw_ops.ResourceScatterSub(
            resource=update.variable.handle,
            indices=rows,
            updates=rate * momentum / (tf.sqrt(velocity) + self.config["epsilon"]),
        )

    def _powers(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.cast(step + 1, tf.float32)
        return tf.pow(self.config["beta_1"], count), tf.pow(self.config["beta_2"], count)


def _moved(slot: tf.Variable, rows: tf.Tensor, target: tf.Tensor, beta: float) -> tf.Tensor:
    """Moves rows of a moving average towards a target and returns them."""
    old = tf.raw_ops.ResourceGather(resource=slot.handle, indices=rows, dtype=tf.float32)
    new = old + (target - old) * (1.0 - beta)
    tf.raw_ops.ResourceScatterUpdate(resource=slot.handle, indices=rows, updates=new)
    return new
