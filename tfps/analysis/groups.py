"""How well a model does for groups of records, such as those that share a feature's value."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfps.experiment import metrics
from tfps.experiment.ranking_metrics import GroupAUC


class Group(NamedTuple):
    """Some records that have something in common.

    Attributes:
        name: What it is.
        records: How many there are.
        positives: How many of them have the label 1.
        predicted: The mean of their predictions.
        auc: The AUC among them alone; nan where one of the two classes is absent.
    """

    name: str
    records: int
    positives: int
    predicted: float
    auc: float


def auc_by_group(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, names: npt.ArrayLike
) -> list[Group]:
    """The AUC within each group, the one with most records first.

    Args:
        labels: 0 or 1, shape `[n]` or `[n, 1]`.
        predictions: Any scores, of the same shape; higher means more likely 1.
        names: Of each record's group, `[n]` of any dtype.

    Raises:
        ValueError: If the sizes differ or a label is neither 0 nor 1.
    """
    is_positive, scores = metrics.as_binary(labels, predictions)
    if len(np.asarray(names)) != len(scores):
        raise ValueError(f"{len(scores)} predictions but {len(np.asarray(names))} names of groups")
    if not len(scores):
        return []
    found, numbers = np.unique(np.asarray(names), return_inverse=True)
    areas, records = GroupAUC().by_group(is_positive.astype("f8"), scores.astype("f8"), numbers)
    positives = np.bincount(numbers, is_positive)
    predicted = np.bincount(numbers, scores.astype("f8")) / records
    order = np.argsort(-records, kind="stable")
    return [
        Group(
            str(found[k]), int(records[k]), int(positives[k]), float(predicted[k]), float(areas[k])
        )
        for k in order
    ]
