"""What missed updates add to rows where that is a geometric series."""

import math

import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.outlook import Series
from tfps.optimizers.step_sums import ConstantSums, StepSums


class MissedSeries:
    """For rows, the sum of `ratio^j * factor_j * kept_j` over missed updates j, counted from 1.

    `factor` is that of `Series`, and `kept` what the missed updates after j keep of a parameter.
    """

    def __init__(self, series: Series, sums: StepSums, missed: MissedUpdates):
        """Takes the series.

        Args:
            series: What each update adds.
            sums: Over the updates.
            missed: The updates.
        """
        self._series, self._sums, self._missed = series, sums, missed

    def whole(self) -> tf.Tensor:
        """The sum over all missed updates, `[u, 1]` float64."""
        if isinstance(self._sums, ConstantSums):
            return self._missed.series(self._series.ratio, self._sums.kept_by_each)
        return self.part(0.0, math.inf)

    def part(self, begin: float, end: float) -> tf.Tensor:
        """The sum over j from above `begin` up to `end`, as far as there are, `[u, 1]` float64."""
        return self._beyond(begin) - self._beyond(end)

    def _beyond(self, place: float) -> tf.Tensor:
        """The sum over all j above `place` or the last, as if updates never ended."""
        missed, sums = self._missed, self._sums
        log_ratio = math.log(self._series.ratio)
        if place == math.inf:
            return tf.exp(missed.count * log_ratio) * sums.outlook(missed.end)
        count = tf.minimum(missed.count, place)
        step = missed.first + count
        return tf.exp(count * log_ratio) * sums.kept(step, missed.end) * sums.outlook(step)
