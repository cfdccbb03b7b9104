"""Adam on the ps."""

import itertools
import math

import keras
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates, geometric
from tfps.optimizers.outlook import Series
from tfps.optimizers.update_rule import RowUpdate, Slot, Tensors, Update, UpdateRule

# By how much a velocity's root may fall within a part of a series, and at how many parts that ends.
_APART, _MOST_CUTS = 0.05, 16
_LEFT = 20.0  # after such a fall epsilon alone is left


class Adam(UpdateRule):
    """`keras.optimizers.Adam`.

    AdamW is Adam with weight decay. Moments and bias correction are those of Kingma and Ba (2015),
    section 2, in the order Keras uses; `amsgrad` divides by the largest velocity so far (Reddi et
    al., 2018).
    """

    fused = True
    takes_squares = True

    def __init__(self, optimizer: keras.optimizers.Adam):
        super().__init__(optimizer)
        beta_1, beta_2 = self.config["beta_1"], self.config["beta_2"]
        self.drifts = beta_1 > 0
        # What an update without a gradient leaves of the change that the one before it made.
        self._ratio = beta_1
        if not self.config["amsgrad"]:
            self._ratio = beta_1 / math.sqrt(beta_2) if beta_2 > 0 else math.inf
        if self.drifts and self._ratio >= 1.0:
            self.endless_drift = (
                f"with beta_1={beta_1}, which is not below the square root of beta_2={beta_2},"
            )
        if 0.0 < self._ratio < 1.0:
            self.series = Series(self._ratio, (beta_1, beta_2))
        self.slots = {"momentum": Slot(kept=beta_1), "velocity": Slot(kept=beta_2, is_square=True)}
        if self.config["amsgrad"]:
            self.slots["velocity_hat"] = Slot(kept=None, is_square=True)

    def dense(self, update: Update) -> list[tf.Operation]:
        beta1_power, beta2_power = self._powers(update.step)
        options = {
            "beta1_power": beta1_power,
            "beta2_power": beta2_power,
            "beta1": self.config["beta_1"],
            "beta2": self.config["beta_2"],
            "epsilon": self.config["epsilon"],
        }
        if self.config["amsgrad"]:
            kernel = tf.raw_ops.ResourceApplyAdamWithAmsgrad
            return self.kernel(kernel, update, ["m", "v", "vhat"], **options)
        return self.kernel(tf.raw_ops.ResourceApplyAdam, update, ["m", "v"], **options)

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        rows, slots, gradient, step, _ = update
        beta1_power, beta2_power = self._powers(step)
        momentum = slots[0] + (gradient - slots[0]) * (1.0 - self.config["beta_1"])
        squares = update.squared
        velocity = slots[1] + (squares - slots[1]) * (1.0 - self.config["beta_2"])
        largest = [tf.maximum(slot, velocity) for slot in slots[2:]]
        rate = self.learning_rate(step) * tf.sqrt(1.0 - beta2_power) / (1.0 - beta1_power)
        root = tf.sqrt(largest[0] if largest else velocity)
        change = rate * momentum / (root + self.config["epsilon"])
        return [rows - change, momentum, velocity, *largest]

    def drift(self, slots: Tensors, missed: MissedUpdates, decays: bool) -> tf.Tensor:
        """The sum of `rate_j beta_1^j m / (sqrt(beta_2^j v) + epsilon)` over missed updates j."""
        # It is a geometric series but for epsilon, which is divided by the mean of `beta_2^(j / 2)`
        # in each of some parts of the series. Divided by the largest velocity, which misses
        # nothing, its ratio is `beta_1`.
        series, root = self.missed_series(missed, decays), tf.sqrt(slots[-1])
        epsilon = self.config["epsilon"]
        if self.config["amsgrad"]:
            return -tf.cast(series.whole(), tf.float32) * (slots[0] / (root + epsilon))
        factor = tf.zeros_like(root)
        for begin, end in itertools.pairwise([*self._cuts, math.inf]):
            first, last = tf.minimum(missed.count, begin), tf.minimum(missed.count, end)
            grown = epsilon * self._growth(first, last - first)
            factor += tf.cast(series.part(begin, end), tf.float32) / (root + grown)
        return -factor * slots[0]

    @property
    def _cuts(self) -> list[float]:
        """Where the series is cut: evenly up to where little is left of it, or of the velocity."""
        beta_2 = self.config["beta_2"]
        if beta_2 >= 1.0:
            return [0.0]
        # Of the logarithm of the root.
        way = min(-1.5 * math.log(beta_2) / (1.0 - self._ratio), _LEFT)
        count = min(math.ceil(way / _APART), _MOST_CUTS)
        each = way / count / (-0.5 * math.log(beta_2))
        return sorted({float(round(each * number)) for number in range(count)})

    def _growth(self, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """What epsilon is multiplied by in `count` updates after `first` others, float32."""
        # It turns the series, divided by epsilon alone, into the one with the ratio `beta_1`.
        beta_1, log_beta_2 = self.config["beta_1"], math.log(self.config["beta_2"])
        wide = geometric(math.log(self._ratio), count) * self._ratio
        narrow = geometric(math.log(beta_1), count) * beta_1
        grown = tf.exp(tf.minimum(-0.5 * log_beta_2 * first, 80.0))
        # No update multiplies it by 1: a row that nothing has touched has no root to divide by.
        ratio = tf.where(narrow > 0.0, tf.math.divide_no_nan(wide, narrow), 1.0)
        return tf.cast(grown * ratio, tf.float32)

    def _powers(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.cast(step + 1, tf.float32)
        return tf.pow(self.config["beta_1"], count), tf.pow(self.config["beta_2"], count)
