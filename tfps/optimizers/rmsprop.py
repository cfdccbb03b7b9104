"""RMSprop on the ps."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.outlook import Series
from tfps.optimizers.slot import Slot
from tfps.optimizers.update_rule import Update, UpdateRule, squared


class RmsProp(UpdateRule):
    """`keras.optimizers.RMSprop`, with momentum and centered.

    TensorFlow's kernels need a momentum slot even where there is no momentum; memory counts for
    more than a kernel then. Centered, velocity less the square of the average gradient is a
    variance: where rounding makes it negative it is taken as 0, while Keras and TensorFlow's kernel
    take the root of a negative number.
    """

    takes_squares = True

    def __init__(self, optimizer: keras.optimizers.RMSprop):
        super().__init__(optimizer)
        self._momentum = self.drifts = self.config["momentum"] > 0
        self.series = Series(self.config["momentum"]) if self.drifts else None
        self._centered = self.config["centered"]
        self.fused = self._momentum and not self._centered
        self.slots = {"velocity": Slot(kept=self.config["rho"], is_square=True)}
        if self._momentum:
            self.slots["momentum"] = Slot(kept=self.config["momentum"])
        if self._centered:
            self.slots["average_gradient"] = Slot(kept=self.config["rho"])

    def dense(self, update: Update) -> list[tf.Operation]:
        if not self.fused:
            return super().dense(update)
        return [
            tf.raw_ops.ResourceApplyRMSProp(
                var=update.variable.handle,
                ms=update.slots[0].handle,
                mom=update.slots[1].handle,
                lr=self.learning_rate(update.step),
                rho=self.config["rho"],
                momentum=self.config["momentum"],
                epsilon=self.config["epsilon"],
                grad=update.gradient,
            )
        ]

    def sparse(
        self,
        rows: tf.Tensor,
        slots: Sequence[tf.Tensor],
        gradient: tf.Tensor,
        step: tf.Tensor,
        squares: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        rho = self.config["rho"]
        velocity = rho * slots[0] + (1.0 - rho) * squared(gradient, squares)
        spread, averages, momenta = velocity, [], []
        if self._centered:
            averages = [rho * slots[-1] + (1.0 - rho) * gradient]
            spread = tf.maximum(velocity - tf.square(averages[0]), 0.0)
        scaled = gradient * tf.math.rsqrt(spread + self.config["epsilon"])
        change = self.learning_rate(step) * scaled
        if self._momentum:
            change += self.config["momentum"] * slots[1]
            momenta = [change]
        return [rows - change, velocity, *momenta, *averages]

    def drift(self, slots: Sequence[tf.Tensor], missed: MissedUpdates, decays: bool) -> tf.Tensor:
        return -tf.cast(self.missed_series(missed, decays).whole(), tf.float32) * slots[1]
