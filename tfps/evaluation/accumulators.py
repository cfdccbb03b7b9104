"""What metrics keep of an evaluation whose records come one part after the other."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np

from tfps.evaluation.running_auc import RunningAuc
from tfps.experiment import metrics
from tfps.experiment.ranking_metrics import GroupedMetric
from tfps.experiment.summed_metrics import SummedMetric
from tfps.experiment.task import Metric
from tfps.model.compiled_metrics import CompiledMetric, update_in_chunks

# Means over records: that of two parts is that of both together, weighted by their records.
_MEANS = (
    metrics.accuracy,
    metrics.class_accuracy,
    metrics.mean_squared_error,
    metrics.mean_absolute_error,
)


class Measured(NamedTuple):
    """What a metric measured.

    Attributes:
        value: Its value.
        note: What people should know of it; empty for nothing.
    """

    value: float
    note: str = ""


class Accumulator(Protocol):
    """A metric of all records that were added."""

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        """Adds some records.

        Args:
            labels: As a metric is given them.
            predictions: As a metric is given them.
            groups: The group of each record; None for a task without groups.
        """

    def result(self) -> Measured:
        """The metric of what was added; to be asked once."""


def accumulator_of(metric: Metric) -> Accumulator:
    """What keeps of records what a metric needs; of one that is not known, all of them.

    Args:
        metric: As `Task.metrics` gives it.
    """
    if metric is metrics.auc:
        return _Auc()
    if isinstance(metric, SummedMetric):
        return _Sums(metric.sums, metric.value)
    if getattr(metric, "func", metric) in _MEANS:  # with a threshold, say
        return _Sums(functools.partial(_weighted, metric), _mean)
    if isinstance(metric, CompiledMetric):
        return _OfKeras(metric.metric)
    if isinstance(metric, keras.metrics.Metric):
        return _OfKeras(lambda labels, predictions: metric)
    return _Everything(metric)


class _Auc:
    """The area under the ROC curve, with how far it may be off."""

    def __init__(self) -> None:
        self._running = RunningAuc()

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        self._running.add(labels, predictions)

    def result(self) -> Measured:
        found = self._running.result()
        note = f"is within {found.bound:.1e} of the exact area" if found.bound else ""
        return Measured(found.value, note)


class _Sums:
    """A metric that follows from sums."""

    def __init__(
        self, sums: Callable[[Any, Any], np.ndarray], value: Callable[[np.ndarray], float]
    ):
        self._sums_of, self._value = sums, value
        self._sums: Any = 0.0

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        self._sums = self._sums + self._sums_of(labels, predictions)

    def result(self) -> Measured:
        return Measured(self._value(self._sums))


class _OfKeras:
    """A metric of Keras's, which keeps what it needs itself."""

    def __init__(self, make: Callable[[Any, Any], keras.metrics.Metric]):
        self._make = make
        self._metric: keras.metrics.Metric | None = None

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        if self._metric is None:
            self._metric = self._make(labels, predictions)
        update_in_chunks(self._metric, labels, predictions)

    def result(self) -> Measured:
        assert self._metric is not None
        return Measured(float(self._metric.result()))


class _Everything:
    """A metric that is given all records at once, which are kept until then."""

    def __init__(self, metric: Metric):
        self._metric = metric
        self._parts: list[tuple[Any, Any, np.ndarray | None]] = []

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        self._parts.append((labels, predictions, groups))

    def result(self) -> Measured:
        labels, predictions, groups = (_joined(parts) for parts in zip(*self._parts, strict=True))
        if groups is None or not isinstance(self._metric, GroupedMetric):
            return Measured(float(np.asarray(self._metric(labels, predictions))))
        found = self._metric.mean(labels, predictions, groups)
        left_out = (
            f"leaves out {found.left_out:,} of {found.groups:,} groups, without {found.needs}"
        )
        return Measured(found.value, left_out if found.left_out else "")


def _joined(parts: Any) -> Any:
    """Parts end to end: arrays, or dicts of arrays."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Mapping):
        return {name: np.concatenate([part[name] for part in parts]) for name in first}
    return np.concatenate(parts)


def _weighted(metric: Metric, labels: Any, predictions: Any) -> np.ndarray:
    """A mean over some records, times their number; and the number."""
    records = len(np.asarray(labels))
    return np.array([metric(labels, predictions) * records if records else 0.0, records])


def _mean(sums: np.ndarray) -> float:
    total, records = sums
    return float(total / records) if records else float("nan")
