"""A task's metrics of an evaluation."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfps.errors import UserError, reason_of
from tfps.experiment.task import Metric, Task
from tfps.model.predictions import SINGLE


def task_metrics(
    task: Task, labels: Mapping[str, np.ndarray], predictions: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The metrics by name; those under a label's name are `LABEL_METRIC`.

    Args:
        task: Whose `metrics()` are asked.
        labels: `[records, ...]` by name.
        predictions: `[records, ...]` float32 by name.

    Raises:
        UserError: If a metric fails.
    """
    found = {}
    whole = predictions[SINGLE] if list(predictions) == [SINGLE] else dict(predictions)
    for name, label, metric in _flat(task):
        given = (labels[label], predictions[label]) if label else (task.label_values(labels), whole)
        try:
            found[name] = float(np.asarray(metric(*given)))
        except Exception as error:  # whatever the user's code raises
            raise UserError(
                f"metric {name!r} of {type(task).__name__} fails: {reason_of(error)}"
            ) from error
    return found


def metric_names(task: Task) -> list[str]:
    """Names of an evaluation's metrics: `loss`, then those that `task_metrics` gives."""
    return ["loss", *(name for name, _, _ in _flat(task))]


def try_metrics(
    task: Task,
    labels: Mapping[str, np.ndarray],
    prediction_shapes: Mapping[str, Sequence[int | None]],
) -> None:
    """Computes the metrics of labels and drawn predictions, for what it says of the metrics.

    Args:
        task: Whose metrics they are.
        labels: Of some records of the evaluation data, `[records, ...]` by name.
        prediction_shapes: Shape of one record's predictions by name.

    Raises:
        UserError: If a metric fails.
    """
    drawn = np.random.default_rng(0)
    records = len(next(iter(labels.values())))
    predictions = {
        name: drawn.random([records, *(size or 1 for size in shape)], np.float32)
        for name, shape in prediction_shapes.items()
    }
    try:
        task_metrics(task, labels, predictions)
    except UserError as error:
        raise UserError(
            f"{error} (tried with the labels of {records} evaluation records, and predictions that "
            f"are drawn); override metrics() of {type(task).__name__}"
        ) from error.__cause__


def check_metrics(task: Task, prediction_names: Sequence[str]) -> None:
    """Refuses metrics that stand under a name which is no label, or has no prediction.

    Raises:
        UserError: If there are any.
    """
    names = {label.name for label in task.targets()}
    for name, label, _ in _flat(task):
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


def _flat(task: Task) -> Iterator[tuple[str, str, Metric]]:
    """The name, the label it stands under ("" for none) and the callable of every metric."""
    for name, metric in task.metrics().items():
        if isinstance(metric, Mapping):
            yield from ((f"{name}_{key}", name, each) for key, each in metric.items())
        else:
            yield name, "", metric
