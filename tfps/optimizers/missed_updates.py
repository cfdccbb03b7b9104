"""The updates that rows were no part of, in which Keras changes them all the same."""

import dataclasses
import math
from typing import TypeAlias

import tensorflow as tf

from tfps.optimizers.outlook import Series
from tfps.optimizers.step_sums import ChangedSums, ConstantSums, StepSums, sums_of_rate_one

# A number of updates, of all rows or `[u, 1]` float64.
Place: TypeAlias = float | tf.Tensor


@dataclasses.dataclass(frozen=True)
class MissedUpdates:
    """For each of some rows, the updates since its last one; its gradient was zero in all of them.

    What they make of a row is a power of their number, or a geometric series. These are computed in
    float64: float32 has no numbers of updates above 2^24, and nothing left of their differences.
    """

    count: tf.Tensor  # `[u, 1]` float64; 0 for a row that missed none
    next_step: tf.Tensor  # of the update after the missed ones, scalar int64

    @classmethod
    def of(cls, count: tf.Tensor, next_step: tf.Tensor) -> "MissedUpdates":
        return cls(tf.cast(count, tf.float64)[:, tf.newaxis], next_step)

    @property
    def end(self) -> tf.Tensor:
        """Number of the update after the last that each row missed, scalar float64."""
        return tf.cast(self.next_step, tf.float64)

    @property
    def first(self) -> tf.Tensor:
        """Number of the first update that each row missed, `[u, 1]` float64."""
        return self.end - self.count

    def power(self, ratio: float) -> tf.Tensor:
        """`ratio^count` for a ratio from 0 up to 1, `[u, 1]`."""
        if ratio == 0.0:
            return tf.cast(tf.equal(self.count, 0.0), tf.float64)
        return tf.exp(self.count * math.log(ratio))

    def series(self, ratio: float, kept: tf.Tensor) -> tf.Tensor:
        """The sum of `ratio^j * kept^(count - j)` for j from 1 to `count`, `[u, 1]`."""
        # It is added to a parameter where number j of the missed updates adds `ratio^j` to
        # it, and each keeps that part of what it was. The ratio is above 0 and below 1; `kept` is
        # of any sign, scalar or `[u, 1]` float64.
        size = tf.abs(kept)
        larger, smaller = tf.maximum(size, ratio), tf.minimum(size, ratio)
        # Nothing is left of it, and there is no logarithm of 0.
        log_quotient = tf.math.log(tf.maximum(smaller, 1e-30) / larger)
        terms = geometric(log_quotient, self.count)
        of_same_sign = tf.exp((self.count - 1.0) * tf.math.log(larger)) * terms
        is_odd = tf.not_equal(tf.math.floormod(self.count, 2.0), 0.0)
        power = tf.pow(size, self.count)
        difference = self.power(ratio) - tf.where(is_odd, -power, power)
        return ratio * tf.where(kept > 0.0, of_same_sign, difference / (ratio + size))


def geometric(log_ratio: float | tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The sum of `exp(j * log_ratio)` for j from 0 to below a count, float64."""
    log_ratio = tf.convert_to_tensor(log_ratio, tf.float64)
    is_one = tf.equal(log_ratio, 0.0)
    divisor = tf.where(is_one, tf.ones_like(log_ratio), tf.math.expm1(log_ratio))
    return tf.where(is_one, count, tf.math.expm1(count * log_ratio) / divisor)


class MissedSeries:
    """For rows, the sum of `ratio^j * factor_j * kept_j` over missed updates j, counted from 1.

    `factor` is that of `Series`, and `kept` what the missed updates after j keep of a parameter.
    """

    def __init__(self, series: Series, sums: StepSums, missed: MissedUpdates):
        self._series, self._sums, self._missed = series, sums, missed

    def whole(self) -> tf.Tensor:
        """The sum over all missed updates, `[u, 1]` float64."""
        if isinstance(self._sums, ConstantSums):
            return self._missed.series(self._series.ratio, self._sums.kept_by_each)
        return self.part(0.0, math.inf)

    def part(self, begin: Place, end: Place) -> tf.Tensor:
        """The sum over j from above `begin` up to `end`, as far as there are, `[u, 1]` float64."""
        found = self._beyond(begin) - self._beyond(end)
        if isinstance(self._sums, ChangedSums) and self._sums.weight_decay:
            # Sums that an outlook does not have: it grows without bound where decay takes more.
            of_mean = self._until(end) - self._until(begin)
            found = tf.where(self._sums.keeps_more_than(self._series.ratio), found, of_mean)
        return found

    def _beyond(self, place: Place) -> tf.Tensor:
        """The sum over all j above `place` or the last, as if updates never ended."""
        missed, sums = self._missed, self._sums
        log_ratio = math.log(self._series.ratio)
        if isinstance(place, float) and place == math.inf:
            return tf.exp(missed.count * log_ratio) * sums.outlook(missed.end)
        if isinstance(place, float) and place == 0.0:
            return sums.kept(missed.first, missed.end) * sums.outlook(missed.first)
        count = tf.minimum(missed.count, place)
        step = missed.first + count
        return tf.exp(count * log_ratio) * sums.kept(step, missed.end) * sums.outlook(step)

    def _until(self, place: Place) -> tf.Tensor:
        """The sum over j up to `place` or the last, as if all had the mean learning rate."""
        missed, series, count = self._missed, self._series, self._missed.count
        rate = tf.math.divide_no_nan(self._sums.between(missed.first, missed.end), count)
        kept = 1.0 - self._sums.weight_decay * rate
        until = tf.minimum(count, place)
        up_to = MissedUpdates(until, missed.next_step).series(series.ratio, kept)
        factor = tf.ones([], tf.float64)
        if series.betas:
            ones = sums_of_rate_one(series)
            corrected = ones.outlook(missed.first) - missed.power(series.ratio) * ones.outlook(
                missed.end
            )
            plain = series.ratio * geometric(math.log(series.ratio), count)
            factor = rate * tf.math.divide_no_nan(corrected, plain)
        return factor * tf.pow(kept, count - until) * up_to
