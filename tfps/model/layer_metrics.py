"""Metrics that a model's own code updates, such as a `keras.metrics.Mean` in a layer's `call`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from keras import tree

from tfps.model.compiled_task import made_again

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
States = Mapping[str, npt.NDArray[np.float64]]


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


class LayerMetrics:
    """The metrics of a model and its layers that evaluations measure, but for those of `compile`.

    In each batch they begin without having seen anything; what they have seen is added up.

    Attributes:
        unmeasured: Why another one is not measured, a sentence for each.
    """

    def __init__(self, model: type[keras.Model]) -> None:
        self.unmeasured: list[str] = []
        if model.compute_metrics is not keras.Model.compute_metrics:
            self.unmeasured.append(
                f"compute_metrics() of {model.__name__} is never called, and what it measures is "
                "not reported: update a keras.metrics.Mean in call() or compute_loss(), or name a "
                "metric in compile() or metrics()"
            )
        self._metrics: dict[str, keras.metrics.Metric] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, as in Keras's logs."""
        return tuple(self._metrics)

    def choose(
        self,
        evaluated: Sequence[keras.metrics.Metric],
        trained: Sequence[keras.metrics.Metric],
    ) -> None:
        """Chooses those that can be measured."""
        known = {id(metric) for metric in evaluated}
        for metric in trained:
            if id(metric) not in known:
                self._leave_out(metric, "it is updated in training alone, and evaluations measure")
        for metric in evaluated:
            if metric.name == "loss" or metric.name in self._metrics:
                self._leave_out(metric, "another one has its name")
            elif not is_sum(metric) or not metric.variables:
                kind = type(metric).__name__
                self._leave_out(metric, f"a {kind} of several workers is not a sum, as a Mean is")
            else:
                made_again(metric)
                self._metrics[metric.name] = metric

    def states(self, scope: keras.StatelessScope) -> dict[str, tf.Tensor]:
        """What they have seen at the end of a scope, by name, laid end to end `[n]` float64."""
        return {
            name: tf.concat(
                [
                    tf.reshape(tf.cast(scope.get_current_value(v), tf.float64), [-1])
                    for v in metric.variables
                ],
                0,
            )
            for name, metric in self._metrics.items()
        }

    def zeros(self) -> dict[str, tf.Tensor]:
        """The states of metrics that have seen nothing."""
        return {
            name: tf.zeros([sum(int(np.prod(v.shape)) for v in metric.variables)], tf.float64)
            for name, metric in self._metrics.items()
        }

    def result(self, states: Iterable[States]) -> dict[str, float]:
        """The metrics by name of what was seen in several places together."""
        found: dict[str, float] = {}
        every = list(states)
        for name, metric in self._metrics.items():
            total = np.sum([each[name] for each in every], 0)
            # Made now: a process that becomes a chief loses the variables it made before.
            again = made_again(metric)
            for variable in again.variables:
                size = int(np.prod(variable.shape))
                variable.assign(np.reshape(total[:size], variable.shape))
                total = total[size:]
            found[name] = float(again.result())
        return found

    def _leave_out(self, metric: keras.metrics.Metric, reason: str) -> None:
        self.unmeasured.append(f"metric {metric.name!r} of the model is not measured: {reason}")
