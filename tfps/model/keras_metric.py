"""A metric of Keras's over any number of records."""

from typing import Any

import keras
import numpy as np
from keras import tree

_CHUNK = 1 << 16  # records that a metric is given at once
# Metrics whose state of several chunks is the sum of the states of each.
_SUMMED = (
    keras.metrics.Mean,
    keras.metrics.Sum,
    keras.metrics.AUC,
    keras.metrics.Precision,
    keras.metrics.Recall,
    keras.metrics.TruePositives,
    keras.metrics.TrueNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.FalseNegatives,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.FBetaScore,
)


def is_sum(metric: keras.metrics.Metric) -> bool:
    """Whether a metric's state of several chunks is the sum of the states of each."""
    update = type(metric).update_state.__module__  # not of a class of the user's own
    return isinstance(metric, _SUMMED) and update.partition(".")[0] == "keras"


class RunningKerasMetric:
    """Shows records to a metric chunk by chunk, as Keras's `evaluate` does batch by batch.

    Keras keeps float32 sums, in which a count stops at 2^24. Of the metrics of Keras's own whose
    states are sums, those of the chunks are added up here, in float64. Another metric keeps its
    state as it does.
    """

    def __init__(self, metric: keras.metrics.Metric):
        """Begins without records.

        Args:
            metric: The metric; what it has seen before is forgotten.
        """
        self._metric = metric
        self._is_summed = is_sum(metric)
        self._sums: list[np.ndarray] = []
        metric.reset_state()

    def add(self, labels: Any, predictions: Any) -> None:
        """Adds some records.

        Args:
            labels: `[records, ...]`, or a structure of such.
        """
        records = len(np.asarray(tree.flatten(labels)[0]))
        for first in range(0, records, _CHUNK):
            some = slice(first, first + _CHUNK)
            self._metric.update_state(
                *(
                    tree.map_structure(lambda values, some=some: values[some], each)
                    for each in (labels, predictions)
                )
            )
            if self._is_summed:
                self._take_sums()

    def result(self) -> float:
        """The metric of all records."""
        if self._sums:
            for variable, value in zip(self._metric.variables, self._sums, strict=True):
                variable.assign(value.astype(variable.dtype))
        return float(self._metric.result())

    def _take_sums(self) -> None:
        found = [np.asarray(variable, np.float64) for variable in self._metric.variables]
        if self._sums:
            found = [mine + its for mine, its in zip(self._sums, found, strict=True)]
        self._sums = found
        self._metric.reset_state()
