"""The metrics that a model is compiled with, as a task has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tfps.errors import UserError, reason_of
from tfps.model.keras_metric import RunningKerasMetric


class CompiledMetric:
    """One metric of `compile`, as a callable of all labels and predictions of an evaluation."""

    def __init__(self, identifier: Any):
        self._identifier = identifier
        by_object = getattr(identifier, "name", None) or getattr(identifier, "__name__", None)
        self.name = identifier if isinstance(identifier, str) else str(by_object or identifier)

    def __call__(self, labels: np.ndarray, predictions: np.ndarray) -> float:
        """What it is after all records, as in Keras's `evaluate`.

        Args:
            labels: `[records, ...]`.
            predictions: `[records, ...]`.
        """
        running = RunningKerasMetric(self.metric(labels, predictions))
        running.add(labels, predictions)
        return running.result()

    def metric(self, labels: np.ndarray, predictions: np.ndarray) -> keras.metrics.Metric:
        """A metric of Keras's that has seen no record.

        Args:
            labels: Some of those that it is for, `[n, ...]`; their shape tells which it is.
            predictions: As many, `[n, ...]`.
        """
        found = self._identifier
        if str(found).lower() in ("accuracy", "acc"):
            return _accuracy(labels, predictions)
        if isinstance(found, str):
            found = keras.metrics.get(found)
        if isinstance(found, keras.metrics.Metric):
            return made_again(found)
        return keras.metrics.MeanMetricWrapper(found)


def made_again(metric: keras.metrics.Metric) -> keras.metrics.Metric:
    """A metric like one that was made before this process was a chief: it lost its variables."""
    try:
        return type(metric).from_config(metric.get_config())
    except Exception as error:  # whatever a metric of the user's own raises
        raise UserError(
            f"Keras cannot make the metric {metric.name!r} again "
            f"({reason_of(error)}); hand compile() its name or a function of "
            "labels and predictions, or give its class a get_config()"
        ) from error


def compiled_metrics(
    compiled: Mapping[str, Any], labels: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any] | None:
    """Metrics as `Task.metrics` gives them; None of a model that is compiled without any.

    Those of `weighted_metrics` are among them, without weights: evaluations have none.
    """
    found: dict[str, Any] = {}
    for argument in ("metrics", "weighted_metrics"):
        given = compiled.get(argument)
        if not given:
            continue
        if len(labels) == 1:
            found |= _by_name(given)
            continue
        for label, some in _by_label(given, labels, outputs):
            found[label] = {**found.get(label, {}), **_by_name(some)}
    return found or None


def _by_label(given: Any, labels: Sequence[str], outputs: Sequence[str]) -> list[tuple[str, Any]]:
    """What is given for each label: by a label's or an output's name, or in the labels' order."""
    if isinstance(given, Mapping):
        names: dict[str, str] = dict(zip(outputs, labels, strict=False))
        names.update(zip(labels, labels, strict=True))
        return [(names.get(name) or str(name), some) for name, some in given.items()]
    if len(given) != len(labels):
        raise UserError(
            f"compile() has metrics for {len(given)} outputs, but there are {len(labels)} labels "
            f"({', '.join(labels)}); give a dict by their names"
        )
    return list(zip(labels, given, strict=True))


def _by_name(given: Any) -> dict[str, CompiledMetric]:
    """Metrics by name of one of them, of several, or of a structure of them."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        given = list(given.values())
    if not isinstance(given, (list, tuple)):
        metric = CompiledMetric(given)
        return {metric.name: metric}
    found: dict[str, CompiledMetric] = {}
    for each in given:
        found |= _by_name(each)
    return found


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> keras.metrics.Metric:
    """What Keras takes "accuracy" for, by the shapes of both."""
    if predictions.ndim == 1 or predictions.shape[-1] == 1:
        return keras.metrics.BinaryAccuracy()
    if labels.ndim < predictions.ndim or labels.shape[-1] == 1:
        return keras.metrics.SparseCategoricalAccuracy()
    return keras.metrics.CategoricalAccuracy()
