"""Adam on the ps."""

import functools
import itertools
import math
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedSeries, MissedUpdates, Place
from tfps.optimizers.outlook import Series
from tfps.optimizers.step_sums import LOG_KEPT, MOST_LOOKED_UP, StepSums, highest_rate, looked_up
from tfps.optimizers.update_rule import RowUpdate, Slot, Tensors, Update, UpdateRule

# Of the logarithm of a velocity's root: how far it falls while a series falls by this power of e,
# in how many parts of this length at most, what fall is next to none, and after which one epsilon
# alone is left. The greatest logarithm taken, and how far one falls until nothing is left of a
# series, which later updates then change no more.
_REACH, _APART, _MOST_PARTS, _NEXT_TO_NONE, _LEFT = 4.5, 0.2, 12, 0.04, 20.0
_MOST_LOG, _NOTHING_LEFT = 80.0, 40.0


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
        # It is a geometric series but for epsilon, which grows by `beta_2^(-j / 2)` beside the
        # root. Divided by the largest velocity, which misses nothing, its ratio is `beta_1`.
        root, epsilon = tf.sqrt(slots[-1]), self.config["epsilon"]
        if self.config["amsgrad"]:
            factor = self.missed_series(missed, decays).whole()
            return -tf.cast(factor, tf.float32) * (slots[0] / (root + epsilon))
        factor = tf.zeros_like(root)
        for part, growth in self._parts(missed, decays):
            factor += tf.cast(part, tf.float32) / (root + epsilon * tf.cast(growth, tf.float32))
        return -factor * slots[0]

    def _parts(self, missed: MissedUpdates, decays: bool) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Parts of the series, and by how much epsilon has grown in each, `[u, 1]` float64."""
        assert self.series
        sums, count = self.sums(decays), self._count_of_parts(decays)
        series = MissedSeries(self.series, sums, missed)
        of_epsilon = self._series_of_epsilon(missed, decays) if count else None
        if not of_epsilon:
            yield series.part(0.0, math.inf), self._even_growth(missed.count)
            return
        for begin, end in itertools.pairwise([*self._cuts(missed, sums, count), math.inf]):
            part = series.part(begin, end)
            least, most = (self._growth(tf.minimum(missed.count, each)) for each in (begin, end))
            # Divided by epsilon alone it is the series with the ratio `beta_1`.
            mean = tf.math.divide_no_nan(part, of_epsilon.part(begin, end))
            mean = tf.clip_by_value(tf.where(mean > 0.0, mean, most), least, most)
            if end is math.inf:
                yield part, mean
                return
            # As Simpson's rule: the mean, and both ends in the shares that have this mean.
            late = tf.math.divide_no_nan(1.0 / least - 1.0 / mean, 1.0 / least - 1.0 / most)
            yield 2.0 / 3.0 * part, mean
            yield (1.0 - late) / 3.0 * part, least
            yield late / 3.0 * part, most

    def _series_of_epsilon(self, missed: MissedUpdates, decays: bool) -> MissedSeries | None:
        """The series as if epsilon were all that it is divided by; None where no sum is known."""
        betas = self.config["beta_1"], self.config["beta_2"]
        series = Series(betas[0], betas)
        sums = self.sums(decays, series)
        return MissedSeries(series, sums, missed) if sums.has_outlooks else None

    def _count_of_parts(self, decays: bool) -> int:
        """In how many parts epsilon grows; 0 if next to not at all."""
        # With the highest learning rate weight decay takes most of the row, so that what is added
        # late counts most beside what is added early.
        kept = 1.0 - self.config["weight_decay"] * self._highest_rate if decays else 1.0
        falls = max(1.0 - self._ratio / kept, 0.0) if kept > 0.0 else 0.0
        way = min(_REACH * self._fall / falls, _LEFT) if falls else _LEFT
        if self._fall == 0.0 or way <= _NEXT_TO_NONE:
            return 0
        return min(math.ceil(way / _APART), _MOST_PARTS)

    def _cuts(self, missed: MissedUpdates, sums: StepSums, count: int) -> list[Place]:
        """Where parts begin: evenly up to where little is left of the series or the velocity."""
        log_kept = tf.zeros([], tf.float64)
        if sums.weight_decay:
            log_kept = sums.between(missed.first, missed.end, LOG_KEPT)
            log_kept = tf.math.divide_no_nan(log_kept, missed.count)
        falls = -tf.math.expm1(math.log(self._ratio) - log_kept)
        reach = tf.where(falls > 0.0, _REACH / tf.maximum(falls, 1e-30), math.inf)
        reach = tf.minimum(tf.minimum(reach, missed.count), _LEFT / self._fall)
        return [tf.round(reach * (number / count)) for number in range(count)]

    @functools.cached_property
    def _highest_rate(self) -> float:
        rate = self.config["learning_rate"]
        return highest_rate(rate) if self.has_schedule else rate

    @property
    def _fall(self) -> float:
        """By how much the logarithm of a velocity's root falls in an update."""
        return -0.5 * math.log(self.config["beta_2"])

    def _growth(self, place: Place) -> tf.Tensor:
        return tf.exp(tf.minimum(self._fall * place, _MOST_LOG))

    def _even_growth(self, count: tf.Tensor) -> tf.Tensor:
        """By how much epsilon has grown over updates of one learning rate, without decay."""
        return looked_up(self._even_growths, count)

    @functools.cached_property
    def _even_growths(self) -> np.ndarray:
        """That over 0 to as many updates as leave anything of the series."""
        # No update multiplies it by 1: a row that nothing has touched has no root to divide by.
        logs = [math.log(self._ratio), math.log(self.config["beta_1"])]
        most = min(math.ceil(_NOTHING_LEFT / -logs[0]), MOST_LOOKED_UP)
        counts = np.arange(1, most + 1)
        wide, narrow = (math.exp(log) * np.expm1(counts * log) / math.expm1(log) for log in logs)
        return np.append(1.0, wide / narrow)

    def _powers(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.cast(step + 1, tf.float32)
        return tf.pow(self.config["beta_1"], count), tf.pow(self.config["beta_2"], count)
