"""A task's metrics of an evaluation."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.errors import UserError, reason_of
from tfps.evaluation.accumulators import Measured, accumulators_of
from tfps.experiment.ranking_metrics import GroupedMetric
from tfps.experiment.task import Metric, Task
from tfps.model.inputs import SINGLE

_Value = TypeVar("_Value")


class EvaluatedPiece(NamedTuple):
    """The result of `Closures.evaluate`."""

    loss_sum: float
    labels: dict[str, np.ndarray]  # of `Task.measured`, and kept features, `[records, ...]` by name
    predictions: dict[str, np.ndarray]  # `[records, ...]` float32 by name
    measured: dict[str, np.ndarray]  # states of the model's own metrics by name, `[n]` float64

    @classmethod
    def pack(cls, results: Sequence["EvaluatedPiece"]) -> bytes:
        """Results of several pieces as bytes, for `unpack`."""
        names, values = [], []
        for result in results:
            tensors = [
                {name: tf.constant(value) for name, value in some.items()}
                for some in (result.labels, result.predictions, result.measured)
            ]
            kinds = [{name: x.dtype.name for name, x in some.items()} for some in tensors]
            names.append([float(result.loss_sum), *kinds])
            values += [tf.io.serialize_tensor(x) for some in tensors for x in some.values()]
        return bytes(tf.io.serialize_tensor(tf.stack([json.dumps(names), *values])).numpy())

    @classmethod
    def unpack(cls, data: bytes) -> list["EvaluatedPiece"]:
        names, *values = tf.unstack(tf.io.parse_tensor(data, tf.string))
        remaining = iter(values)
        return [
            cls(
                loss_sum,
                *(
                    {
                        name: tf.io.parse_tensor(next(remaining), tf.as_dtype(dtype)).numpy()
                        for name, dtype in some.items()
                    }
                    for some in kinds
                ),
            )
            for loss_sum, *kinds in json.loads(names.numpy())
        ]


class RunningMetrics:
    """A task's metrics of an evaluation whose records come in parts."""

    def __init__(self, task: Task):
        self._task = task
        self._group = task.group()
        flat = list(_flat(task))
        kept = accumulators_of([(label, metric) for _, label, metric in flat])
        self._kept = [
            (name, label, each) for (name, label, _), each in zip(flat, kept, strict=True)
        ]

    def add(self, labels: Mapping[str, np.ndarray], predictions: Mapping[str, np.ndarray]) -> None:
        """Adds labels of the task's `measured()`, and predictions, `[records, ...]` by name."""
        whole = predictions[SINGLE] if list(predictions) == [SINGLE] else dict(predictions)
        groups = labels[self._group.name] if self._group else None
        for name, label, kept in self._kept:
            given: tuple[Any, Any]
            if label:
                given = labels[label], predictions[label]
            else:
                given = self._task.label_values(labels), whole
            self._try(name, functools.partial(kept.add, given[0], given[1], groups))

    def result(self) -> dict[str, Measured]:
        """The metrics by name, `LABEL_METRIC` for those under a label; called once."""
        return {name: self._try(name, kept.result) for name, _, kept in self._kept}

    def _try(self, name: str, work: Callable[[], _Value]) -> _Value:
        try:
            return work()
        except Exception as error:  # whatever the user's code raises
            raise UserError(
                f"metric {name!r} of {type(self._task).__name__} fails: {reason_of(error)}"
            ) from error


def metric_names(task: Task) -> list[str]:
    """Names of an evaluation's metrics: `loss`, then those of `RunningMetrics`."""
    return ["loss", *(name for name, _, _ in _flat(task))]


def try_metrics(
    task: Task,
    labels: Mapping[str, np.ndarray],
    prediction_shapes: Mapping[str, Sequence[int | None]],
) -> None:
    """Computes the metrics of labels and random predictions, to find errors early."""
    _refuse_unknown_prediction(task, list(prediction_shapes))
    drawn = np.random.default_rng(0)
    records = len(next(iter(labels.values())))
    predictions = {
        name: drawn.random([records, *(size or 1 for size in shape)], np.float32)
        for name, shape in prediction_shapes.items()
    }
    try:
        running = RunningMetrics(task)
        running.add(labels, predictions)
        running.result()
    except UserError as error:
        raise UserError(
            f"{error} (tried with the labels of {records} evaluation records, and predictions that "
            f"are drawn); override metrics() of {type(task).__name__}"
        ) from error.__cause__


def _refuse_unknown_prediction(task: Task, prediction_names: Sequence[str]) -> None:
    """Refuses default metrics of several predictions when none belongs to the label."""
    is_default = type(task).metrics is Task.metrics and isinstance(task.label(), Feature)
    if is_default and len(prediction_names) > 1 and task.metrics():
        raise UserError(
            f"{type(task).__name__} has no metrics() of its own, and which of its predictions "
            f"{', '.join(prediction_names)} belongs to the label {task.targets()[0].name!r} is not "
            "known; let predictions() give that one alone, or override metrics(): {} measures the "
            "loss alone"
        )


def check_metrics(task: Task, prediction_names: Sequence[str]) -> None:
    """Refuses metrics under a name that is no label, or without a prediction or group."""
    _check_group(task)
    names = {label.name for label in task.targets()}
    for name, label, metric in _flat(task):
        if isinstance(metric, GroupedMetric) and task.group() is None:
            raise UserError(
                f"metrics() of {type(task).__name__}: {name!r} ranks the records of a group, but "
                "group() names none; let it return the Feature of, say, a user's id"
            )
        if label and label not in names:
            raise UserError(
                f"metrics() of {type(task).__name__}: {name!r} stands under {label!r}, which is no "
                f"label; the labels are {', '.join(sorted(names))}"
            )
        if label and label not in prediction_names:
            raise UserError(
                f"metrics() of {type(task).__name__}: {name!r} measures the label {label!r}, but "
                f"predictions() gives {', '.join(prediction_names)}; let it return a dict with the "
                "labels' names, or override metrics()"
            )


def _check_group(task: Task) -> None:
    """Refuses a group that is no id, or differs from the records' feature of its name."""
    group, where = task.group(), f"group() of {type(task).__name__}"
    if group is None:
        return
    if group.shape not in ((), (1,)) or group.dtype == "float32":
        raise UserError(
            f"{where}: {group.name!r} ({group.dtype}, shape {group.shape}) is no id; an int64 or a "
            "string for each record is one"
        )
    for other in (*task.features(), *task.labels()):
        if other.name == group.name and other != group:
            raise UserError(
                f"{where}: {group.name!r} is not the {group.name!r} that records hold; return the "
                "same Feature"
            )


def _flat(task: Task) -> Iterator[tuple[str, str, Metric]]:
    """The name, the label (or "") and the callable of every metric."""
    for name, metric in task.metrics().items():
        if isinstance(metric, Mapping):
            yield from ((f"{name}_{key}", name, each) for key, each in metric.items())
        else:
            yield name, "", metric
