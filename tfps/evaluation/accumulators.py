"""The running state of metrics, for an evaluation whose records come in parts."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np

from tfps.evaluation.curves import ScoreCurves
from tfps.evaluation.grouped_records import GroupedRecords
from tfps.experiment import metrics
from tfps.experiment.metrics import SummedMetric, as_binary, auc
from tfps.experiment.ranking_metrics import GroupedMetric, GroupMean, GroupSums
from tfps.experiment.task import Metric
from tfps.model.compiled_task import CHUNK, CompiledMetric, RunningKerasMetric

EXACT_RECORDS = 1_000_000  # up to here the AUC is exact; they take 5 bytes each
_MOST_EDGES = 1 << 19
# Means over records: that of two parts is that of both together, weighted by their records.
_MEANS = (
    metrics.accuracy,
    metrics.class_accuracy,
    metrics.mean_squared_error,
    metrics.mean_absolute_error,
)


class BoundedAuc(NamedTuple):
    """An AUC, and how far it may be off."""

    value: float  # nan when a class is absent or a prediction is nan
    bound: float  # of the distance from the exact area; 0.0 where it is exact


class RunningAuc:
    """Keeps scores up to a number of records, and then counts by score.

    The kept scores are edges of the counts, at most 2^19 of them, and each edge has its own count:
    ties of seen scores differ from ties of the counts. So an AUC of scores that continue as they
    began is off by next to nothing, and one of few different scores is exact. For other scores
    there are edges all over the float32 numbers, 128 of them from each power of two to the next.
    """

    def __init__(self, exact_records: int = EXACT_RECORDS):
        self._exact_records = exact_records
        self._labels: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._records = 0
        self._has_nan = False
        self._edges: np.ndarray | None = None
        self._counts = np.zeros([2, 0], np.int64)  # of negatives and positives, by place

    def add(self, labels: np.ndarray, predictions: np.ndarray) -> None:
        """Adds some records; labels are 0 or 1, `[n]` or `[n, 1]`."""
        is_positive, scores = as_binary(labels, predictions)
        self._has_nan = self._has_nan or bool(np.isnan(scores).any())
        if self._has_nan:
            return  # neither is any other score of use
        self._records += len(scores)
        if self._edges is not None:
            self._count(is_positive, scores)
            return
        self._labels.append(is_positive.copy())  # not a view that keeps what it is of
        self._scores.append(scores.copy())
        if self._records > self._exact_records:
            self._begin_to_count()

    def result(self) -> BoundedAuc:
        """The area under the ROC curve of all records, as of `metrics.auc`."""
        if self._has_nan:
            return BoundedAuc(math.nan, 0.0)
        if self._edges is None:
            labels, scores = (
                np.concatenate(parts) if parts else np.zeros([0], np.float32)
                for parts in (self._labels, self._scores)
            )
            return BoundedAuc(auc(labels, scores), 0.0)
        negatives, positives = self._counts.astype("f8")
        pairs = negatives.sum() * positives.sum()
        if not pairs:
            return BoundedAuc(math.nan, 0.0)
        below = np.cumsum(negatives) - negatives
        above = float((positives * (below + negatives / 2)).sum())
        # Of pairs between two edges it is not known which is above the other: each is counted as
        # one half, and is at most that much off.
        unknown = float((positives[::2] * negatives[::2]).sum()) / 2
        return BoundedAuc(above / pairs, unknown / pairs)

    def curves(self) -> ScoreCurves | None:
        """ROC and calibration of all records; None if a class is absent or a prediction is nan."""
        if self._has_nan or not self._records:
            return None
        if self._edges is None:
            scores, places = np.unique(np.concatenate(self._scores), return_inverse=True)
            is_positive = np.concatenate(self._labels)
            negatives, positives = (
                np.bincount(places[which], minlength=len(scores))
                for which in (~is_positive, is_positive)
            )
            return ScoreCurves.of(scores, negatives, positives)
        filled = np.flatnonzero(self._counts.sum(0))
        below, above = (self._edges[(filled - before) // 2] for before in (1, 0))
        negatives, positives = self._counts[:, filled]
        return ScoreCurves.of((below + above) / 2, negatives, positives)

    def _begin_to_count(self) -> None:
        labels, scores = np.concatenate(self._labels), np.concatenate(self._scores)
        self._labels, self._scores = [], []
        seen = np.unique(scores)
        stride = -(-len(seen) // _MOST_EDGES) or 1
        self._edges = np.union1d(seen[::stride], _edges_everywhere().astype(scores.dtype))
        self._counts = np.zeros([2, 2 * len(self._edges) + 1], np.int64)
        self._count(labels, scores)

    def _count(self, is_positive: np.ndarray, scores: np.ndarray) -> None:
        """Counts scores: place 2k + 1 is edge k, and the even ones are between two edges."""
        assert self._edges is not None
        order = np.argsort(scores)  # a search for one score after the next finds the edges at hand
        scores, is_positive = scores[order], is_positive[order]
        left = np.searchsorted(self._edges, scores)
        is_on_edge = self._edges[np.minimum(left, len(self._edges) - 1)] == scores
        np.add.at(self._counts, (is_positive.astype(np.intp), 2 * left + is_on_edge), 1)


def _edges_everywhere() -> np.ndarray:
    """The float32 numbers whose last 16 bits are zero, 65,281 with both infinities."""
    numbers = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    return np.unique(numbers[~np.isnan(numbers)])


class Measured(NamedTuple):
    """The value of a metric, and a note for people."""

    value: float
    note: str = ""
    curves: ScoreCurves | None = None  # of an AUC


class Accumulator(Protocol):
    """A metric of all records that were added."""

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        """Adds some records; `groups` is None for a task without groups."""

    def result(self) -> Measured:
        """The metric of all records; called once."""


def accumulators_of(metrics: Sequence[tuple[str, Metric]]) -> list[Accumulator]:
    """The accumulators of metrics, each with the label that it is under, or "".

    Those that rank the records of groups by one label share them.
    """
    ranked: dict[str, _Ranked] = {}
    found: list[Accumulator] = []
    for label, metric in metrics:
        if isinstance(metric, GroupedMetric):
            feeds = label not in ranked
            records = ranked.setdefault(label, _Ranked())
            found.append(_OfGroups(metric, records, records.take(metric), feeds))
        else:
            found.append(_accumulator_of(metric))
    return found


def _accumulator_of(metric: Metric) -> Accumulator:
    """An accumulator of a metric; for an unknown one, of all records."""
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
    def __init__(self) -> None:
        self._running = RunningAuc()

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        self._running.add(labels, predictions)

    def result(self) -> Measured:
        found = self._running.result()
        note = f"is within {found.bound:.1e} of the exact area" if found.bound else ""
        return Measured(found.value, note, self._running.curves())


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
    """A metric of Keras's, which has its own state.

    Records are gathered for it: an update takes some milliseconds, of however few records.
    """

    def __init__(self, make: Callable[[Any, Any], keras.metrics.Metric]):
        self._make = make
        self._running: RunningKerasMetric | None = None
        self._parts: list[tuple[Any, Any]] = []
        self._records = 0  # of the parts

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        if self._running is None:
            self._running = RunningKerasMetric(self._make(labels, predictions))
        self._parts.append((labels, predictions))
        self._records += len(keras.tree.flatten(predictions)[0])
        if self._records >= CHUNK:
            self._update()

    def result(self) -> Measured:
        assert self._running is not None
        self._update()
        return Measured(self._running.result())

    def _update(self) -> None:
        if self._parts and self._running:
            self._running.add(*(_joined(some) for some in zip(*self._parts, strict=True)))
            self._parts, self._records = [], 0


class _Ranked:
    """The metrics that rank the same records of groups, which are kept once for all of them."""

    def __init__(self) -> None:
        self._metrics: list[GroupedMetric] = []
        self._records = GroupedRecords()
        self._has_nan = False
        self._means: list[GroupMean] | None = None

    def take(self, metric: GroupedMetric) -> int:
        """Adds a metric; returns its number."""
        self._metrics.append(metric)
        return len(self._metrics) - 1

    def add(self, labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> None:
        self._has_nan = self._has_nan or bool(np.isnan(scores).any())
        if not self._has_nan:  # else no record is of use
            self._records.add(labels, scores, groups)

    def mean(self, number: int) -> GroupMean:
        if self._means is None:
            sums = [GroupSums()] * len(self._metrics)
            for part in () if self._has_nan else self._records.parts():
                sums = [
                    sum_.plus(metric.sums(*part))
                    for sum_, metric in zip(sums, self._metrics, strict=True)
                ]
            self._means = [
                metric.mean_of(sum_) for sum_, metric in zip(sums, self._metrics, strict=True)
            ]
        return self._means[number]


class _OfGroups:
    """One of the metrics that rank the same records of groups."""

    def __init__(self, metric: GroupedMetric, records: _Ranked, number: int, feeds: bool):
        self._metric, self._records, self._number = metric, records, number
        self._feeds = feeds  # the others find the same records there

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        assert groups is not None  # `check_metrics` refuses a task without them
        flat = self._metric.flat(labels, predictions, groups)
        if self._feeds:
            self._records.add(*flat)

    def result(self) -> Measured:
        found = self._records.mean(self._number)
        left_out = (
            f"leaves out {found.left_out:,} of {found.groups:,} groups, without {found.needs}"
        )
        return Measured(found.value, left_out if found.left_out else "")


class _Everything:
    """A metric that gets all records at once, which are kept until then."""

    def __init__(self, metric: Metric):
        self._metric = metric
        self._parts: list[tuple[Any, Any]] = []

    def add(self, labels: Any, predictions: Any, groups: np.ndarray | None) -> None:
        self._parts.append((labels, predictions))

    def result(self) -> Measured:
        labels, predictions = (_joined(parts) for parts in zip(*self._parts, strict=True))
        return Measured(float(np.asarray(self._metric(labels, predictions))))


def _joined(parts: Any) -> Any:
    """Parts end to end: arrays, or dicts of arrays."""
    first = parts[0]
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
