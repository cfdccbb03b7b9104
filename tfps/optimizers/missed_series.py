"""What missed updates add to rows where that is a geometric series."""

import math

import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates, geometric
from tfps.optimizers.outlook import Series
from tfps.optimizers.step_sums import ChangedSums, ConstantSums, StepSums, sums_of_rate_one


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

    def part(self, begin: float, end: float) -> tf.Tensor:
        """The sum over j from above `begin` up to `end`, as far as there are, `[u, 1]` float64."""
        found = self._beyond(begin) - self._beyond(end)
        if isinstance(self._sums, ChangedSums) and self._sums.weight_decay:
            # Sums that an outlook cannot tell: it grows without bound where decay takes more.
            of_mean = self._until(end) - self._until(begin)
            found = tf.where(self._sums.keeps_more_than(self._series.ratio), found, of_mean)
        return found

    def _beyond(self, place: float) -> tf.Tensor:
        """The sum over all j above `place` or the last, as if updates never ended."""
        missed, sums = self._missed, self._sums
        log_ratio = math.log(self._series.ratio)
        if place == math.inf:
            return tf.exp(missed.count * log_ratio) * sums.outlook(missed.end)
        count = tf.minimum(missed.count, place)
        step = missed.first + count
        return tf.exp(count * log_ratio) * sums.kept(step, missed.end) * sums.outlook(step)

    def _until(self, place: float) -> tf.Tensor:
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
