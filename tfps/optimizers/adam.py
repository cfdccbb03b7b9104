"""Adam on the ps."""

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.slot import Slot
from tfps.optimizers.update_rule import Update, UpdateRule

_NOTHING = 1e-7  # a part of a series, or of a correction, that is left out
_LONGEST = 4096  # entries of a table, and terms of each


class Adam(UpdateRule):
    """`keras.optimizers.Adam`.

    AdamW is Adam with weight decay. Moments and bias correction are those of Kingma and Ba (2015),
    section 2, in the order Keras uses; `amsgrad` divides by the largest velocity so far (Reddi et
    al., 2018).
    """

    fused = True

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
        self._outlooks = _outlooks(beta_1, beta_2, self._ratio)
        self.slots = {
            "momentum": Slot(kept=beta_1),
            "velocity": Slot(kept=beta_2, is_square=True),
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

    def drift(
        self, slots: Sequence[tf.Tensor], missed: MissedUpdates, kept: float | tf.Tensor
    ) -> tf.Tensor:
        """See `UpdateRule`.

        Update number j of the missed ones takes `rate_j beta_1^j m / (sqrt(beta_2^j v) + epsilon)`:
        a geometric series but for the rate, epsilon and weight decay, which are taken as they are
        at the mean place of the series. Divided by the largest velocity, which misses nothing, its
        ratio is `beta_1`.
        """
        ratio, place = self._ratio, missed.mean_place(self._ratio)
        now = tf.cast(missed.next_step, tf.float32)
        series = self._outlook(missed.first) - missed.power(ratio) * self._outlook(now)
        rate = self.learning_rates(missed.first + place - 1.0)
        factor = -rate * series * missed.power(kept, left_out=place)
        # As far as all of the series is, of which most rows have missed most.
        epsilon = self.config["epsilon"] * (ratio / self.config["beta_1"]) ** (1 / (1 - ratio))
        return factor * (slots[0] / (tf.sqrt(slots[-1]) + epsilon))

    def _outlook(self, step: tf.Tensor) -> tf.Tensor:
        """The sum of `ratio^j` times the bias correction of update `step + j - 1`, j from 1 on.

        Of a step's shape, float32: from a table of the first updates, where the correction changes
        fast, and after them as at the mean place of the series, when nothing is left of `beta_1`.
        """
        ratio, table = self._ratio, self._outlooks
        beta2_power = tf.exp((step + 1.0 / (1.0 - ratio)) * math.log(self.config["beta_2"]))
        later = ratio / (1.0 - ratio) * tf.sqrt(1.0 - beta2_power)
        place = tf.cast(tf.minimum(step, float(len(table) - 1)), tf.int32)
        return tf.where(step < len(table), tf.gather(tf.constant(table), place), later)

    def _powers(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.cast(step + 1, tf.float32)
        return tf.pow(self.config["beta_1"], count), tf.pow(self.config["beta_2"], count)


def _outlooks(beta_1: float, beta_2: float, ratio: float) -> np.ndarray:
    """`Adam._outlook` of the first updates, until no power of `beta_1` is left, `[n]` float32."""
    if not 0.0 < ratio < 1.0:
        return np.zeros([1], np.float32)
    count, terms = (
        min(_LONGEST, math.ceil(math.log(_NOTHING) / math.log(x))) for x in (beta_1, ratio)
    )
    steps = np.arange(1, count + terms)
    corrections = np.sqrt(1.0 - beta_2**steps) / (1.0 - beta_1**steps)
    sums = np.convolve(corrections[::-1], ratio ** np.arange(1, terms + 1), "valid")
    return sums[::-1].astype(np.float32)
