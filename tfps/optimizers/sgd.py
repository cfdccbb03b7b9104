"""Stochastic gradient descent on the ps."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.outlook import Series
from tfps.optimizers.slot import Slot
from tfps.optimizers.update_rule import Update, UpdateRule


class Sgd(UpdateRule):
    """`keras.optimizers.SGD`, with momentum and Nesterov's."""

    fused = True

    def __init__(self, optimizer: keras.optimizers.SGD):
        super().__init__(optimizer)
        momentum = self.config["momentum"]
        self.drifts = momentum > 0
        self.series = Series(momentum) if self.drifts else None
        self.slots = {"momentum": Slot(kept=momentum)} if momentum else {}

    def dense(self, update: Update) -> list[tf.Operation]:
        rate = self.learning_rate(update.step)
        if not update.slots:
            return [
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=update.variable.handle, alpha=rate, delta=update.gradient
                )
            ]
        return [
            tf.raw_ops.ResourceApplyKerasMomentum(
                var=update.variable.handle,
                accum=update.slots[0].handle,
                lr=rate,
                grad=update.gradient,
                momentum=self.config["momentum"],
                use_nesterov=self.config["nesterov"],
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
        change = -self.learning_rate(step) * gradient
        if not slots:
            return [rows + change]
        momentum = self.config["momentum"] * slots[0] + change
        if self.config["nesterov"]:
            change += self.config["momentum"] * momentum
        else:
            change = momentum
        return [rows + change, momentum]

    def drift(self, slots: Sequence[tf.Tensor], missed: MissedUpdates, decays: bool) -> tf.Tensor:
        """See `UpdateRule`: update number j of the missed ones adds `momentum^j` of the slot.

        With Nesterov's momentum it adds `momentum^(j + 1)`.
        """
        factor = self.config["momentum"] if self.config["nesterov"] else 1.0
        return tf.cast(self.missed_series(missed, decays).whole() * factor, tf.float32) * slots[0]
