"""FTRL on the ps."""

import keras
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.step_sums import SQUARE, StepSums, highest_rate
from tfps.optimizers.update_rule import RowUpdate, Slot, Tensors, Update, UpdateRule


class Ftrl(UpdateRule):
    """`keras.optimizers.Ftrl`: McMahan et al. (2013), with shrinkage and beta as Keras has them.

    A parameter's value is computed from its slots at every update, whatever it was before: so the
    first update makes zeros of all parameters that had no gradient.
    """

    fused = True
    takes_squares = True
    drifts = True

    def __init__(self, optimizer: keras.optimizers.Ftrl):
        super().__init__(optimizer)
        start = self.config["initial_accumulator_value"]
        self.slots = {"accumulator": Slot(start, is_square=True), "linear": Slot()}

    def dense(self, update: Update) -> list[tf.Operation]:
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

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        rows, slots, gradient, step, _ = update
        rate = self.learning_rate(step)
        accumulator = slots[0] + update.squared
        power = self._power(accumulator)
        shrunk = gradient + 2.0 * self.config["l2_shrinkage_regularization_strength"] * rows
        linear = slots[1] + shrunk - (power - self._power(slots[0])) / rate * rows
        return [self._value(linear, self._quadratic(power, rate)), accumulator, linear]

    def refusal(self, decays: bool) -> str:
        rate, l1 = self.config["learning_rate"], self.config["l1_regularization_strength"]
        shrinkage = 2.0 * self.config["l2_shrinkage_regularization_strength"]
        if not (l1 and shrinkage):
            return ""
        if self.has_schedule:
            rate = highest_rate(rate)
        if not rate:
            return ""
        least = self.config["initial_accumulator_value"] ** -self.config["learning_rate_power"]
        quadratic = (least + self.config["beta"]) / rate
        quadratic += 2.0 * self.config["l2_regularization_strength"]
        if shrinkage <= quadratic:
            return ""
        return (
            f"with l1_regularization_strength={l1}, 2 l2_shrinkage_regularization_strength = "
            f"{shrinkage:g} is more than {quadratic:g}, what the learning rate and the initial "
            "accumulator divide by, so that shrinkage alone turns signs; take less of it"
        )

    def catch_up(
        self, rows: tf.Tensor, slots: Tensors, missed: MissedUpdates, decays: bool
    ) -> list[tf.Tensor]:
        """Ages the linear slot, and computes the rows from it."""
        # Without a gradient the accumulator stays, and shrinkage takes the same part of what the
        # linear slot has beyond the l1 strength at every update.
        accumulator, linear = slots
        has_missed = missed.count > 0
        sums = self.sums(decays)
        power = self._power(accumulator)
        if shrinkage := 2.0 * self.config["l2_shrinkage_regularization_strength"]:
            kept = tf.cast(sums.kept(missed.first, missed.first + 1.0), tf.float32)
            first = linear + shrinkage * kept * rows
            beyond = tf.cast(first - self._clipped(first), tf.float64)
            # What is left may be too large for float32, and nothing of it stays nothing.
            left = tf.math.multiply_no_nan(self._left(power, sums, missed, shrinkage), beyond)
            linear = tf.where(has_missed, self._clipped(first) + tf.cast(left, tf.float32), linear)
        rate = self.learning_rate(missed.next_step - 1)
        value = self._value(linear, self._quadratic(power, rate))
        return [tf.where(has_missed, value, rows), accumulator, linear]

    def _left(
        self, power: tf.Tensor, sums: StepSums, missed: MissedUpdates, shrinkage: float
    ) -> tf.Tensor:
        """What all missed updates but the first leave of the linear slot beyond the l1 strength."""
        # An update leaves `1 - shrinkage kept / quadratic`, with what it keeps of a weight and the
        # quadratic term of the update before it. Of learning rates that change two stand for all,
        # which have the same mean and variance.
        first, end = missed.first, tf.maximum(missed.end - 1.0, missed.first)
        count = tf.maximum(end - first, 1.0)
        mean = sums.between(first, end) / count
        spread = tf.sqrt(tf.maximum(sums.between(first, end, SQUARE) / count - mean * mean, 0.0))
        root = tf.cast(power, tf.float64) + self.config["beta"]
        l2 = 2.0 * self.config["l2_regularization_strength"]
        left: list[tf.Tensor] = []
        for rate in (mean - spread, mean + spread):
            taken = shrinkage * (1.0 - sums.weight_decay * rate) * rate / (root + l2 * rate)
            left.append(1.0 - taken)
        logs = [tf.math.log(tf.maximum(tf.abs(each), 1e-30)) for each in left]
        size = tf.exp(0.5 * (end - first) * (logs[0] + logs[1]))
        is_odd = tf.not_equal(tf.math.floormod(end - first, 2.0), 0.0)
        return tf.where((left[0] + left[1] < 0.0) & is_odd, -size, size)

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
