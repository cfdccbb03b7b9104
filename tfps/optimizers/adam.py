"""Adam on the ps."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.optimizers.update_rule import Slot, Update, UpdateRule


class Adam(UpdateRule):
    """`keras.optimizers.Adam`; for tables its lazy form, which leaves untouched rows alone.

    AdamW is Adam with weight decay. Moments and bias correction are those of Kingma and Ba (2015),
    section 2, in the order Keras uses; `amsgrad` divides by the largest velocity so far (Reddi et
    al., 2018).
    """

    fused = True

    def __init__(self, optimizer: keras.optimizers.Adam):
        super().__init__(optimizer)
        self.slots = {
            "momentum": Slot(kept=self.config["beta_1"]),
            "velocity": Slot(kept=self.config["beta_2"], is_square=True),
        }
        if self.config["amsgrad"]:
            self.slots["velocity_hat"] = Slot(kept=None, is_square=True)

    def dense(self, update: Update) -> list[tf.Operation]:
        """See `UpdateRule`."""
        beta1_power, beta2_power = self._powers(update.step)
        momentum, velocity, *largest = (slot.handle for slot in update.slots)
        arguments = {
            "var": update.variable.handle,
            "m": momentum,
            "v": velocity,
            "beta1_power": beta1_power,
            "beta2_power": beta2_power,
            "lr": self.learning_rate(update.step),
            "beta1": self.config["beta_1"],
            "beta2": self.config["beta_2"],
            "epsilon": self.config["epsilon"],
            "grad": update.gradient,
        }
        if largest:
            return [tf.raw_ops.ResourceApplyAdamWithAmsgrad(vhat=largest[0], **arguments)]
        return [tf.raw_ops.ResourceApplyAdam(**arguments)]

    def sparse(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """See `UpdateRule`."""
        beta1_power, beta2_power = self._powers(step)
        momentum = slots[0] + (gradient - slots[0]) * (1.0 - self.config["beta_1"])
        velocity = slots[1] + (tf.square(gradient) - slots[1]) * (1.0 - self.config["beta_2"])
        largest = [tf.maximum(slot, velocity) for slot in slots[2:]]
        rate = self.learning_rate(step) * tf.sqrt(1.0 - beta2_power) / (1.0 - beta1_power)
        root = tf.sqrt(largest[0] if largest else velocity)
        change = rate * momentum / (root + self.config["epsilon"])
        return [rows - change, momentum, velocity, *largest]

    def _powers(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.cast(step + 1, tf.float32)
        return tf.pow(self.config["beta_1"], count), tf.pow(self.config["beta_2"], count)
