"""FTRL on the ps."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.slot import Slot
from tfps.optimizers.update_rule import Update, UpdateRule


class Ftrl(UpdateRule):
    """`keras.optimizers.Ftrl`: McMahan et al. (2013), with shrinkage and beta as Keras has them.

    A parameter's value is computed again from its slots at every update, whatever it was before: so
    the first update makes zeros of all parameters that had no gradient.
    """

    fused = True
    drifts = True

    def __init__(self, optimizer: keras.optimizers.Ftrl):
        super().__init__(optimizer)
        start = self.config["initial_accumulator_value"]
        self.slots = {"accumulator": Slot(start, is_square=True), "linear": Slot()}

    def dense(self, update: Update) -> list[tf.Operation]:
        """See `UpdateRule`."""
        rate = self.learning_rate(update.step)
        return [
            tf.raw_ops.ResourceApplyFtrlV2(
                var=update.variable.handle,
                accum=update.slots[0].handle,
                linear=update.slots[1].handle,
                grad=update.gradient,
                lr=rate,
                l1=self.config["l1_regularization_strength"],
                l2=self._l2(rate),
                l2_shrinkage=self.config["l2_shrinkage_regularization_strength"],
                lr_power=self.config["learning_rate_power"],
            )
        ]

    def sparse(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """See `UpdateRule`."""
        rate = self.learning_rate(step)
        accumulator = slots[0] + tf.square(gradient)
        power = self._power(accumulator)
        shrunk = gradient + 2.0 * self.config["l2_shrinkage_regularization_strength"] * rows
        linear = slots[1] + shrunk - (power - self._power(slots[0])) / rate * rows
        return [self._value(linear, self._quadratic(power, rate)), accumulator, linear]

    def catch_up(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], missed: MissedUpdates, decays: bool
    ) -> list[tf.Tensor]:
        """See `UpdateRule`.

        Without a gradient the accumulator stays, and shrinkage takes the same part of what the
        linear slot has beyond the l1 strength at every update.
        """
        accumulator, linear = slots
        rate = tf.cast(self.learning_rate(missed.next_step - 1), tf.float32)
        quadratic = self._quadratic(self._power(accumulator), rate)
        has_missed = missed.count > 0
        if shrinkage := 2.0 * self.config["l2_shrinkage_regularization_strength"]:
            first = linear + shrinkage * rows
            beyond = first - self._clipped(first)
            left = tf.pow(1.0 - shrinkage / quadratic, missed.count - 1.0)
            linear = tf.where(has_missed, self._clipped(first) + beyond * left, linear)
        return [tf.where(has_missed, self._value(linear, quadratic), rows), accumulator, linear]

    def _value(self, linear: tf.Tensor, quadratic: tf.Tensor) -> tf.Tensor:
        return (self._clipped(linear) - linear) / quadratic

    def _clipped(self, linear: tf.Tensor) -> tf.Tensor:
        l1 = self.config["l1_regularization_strength"]
        return tf.clip_by_value(linear, -l1, l1)

    def _quadratic(self, power: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        return power / rate + 2.0 * self._l2(rate)

    def _l2(self, rate: tf.Tensor) -> tf.Tensor:
        return self.config["l2_regularization_strength"] + self.config["beta"] / (2.0 * rate)

    def _power(self, accumulator: tf.Tensor) -> tf.Tensor:
        exponent = -self.config["learning_rate_power"]
        return tf.sqrt(accumulator) if exponent == 0.5 else tf.pow(accumulator, exponent)
