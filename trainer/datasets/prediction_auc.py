"""The AUC of predictions that come bit by bit."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfps.experiment import metrics

_MOST_RECORDS = 100_000_000  # 5 bytes each are held until all are known


class PredictionAuc:
    """Collects labels and predictions where an AUC of them is defined."""

    def __init__(self) -> None:
        self._reason = ""
        self._records = 0
        self._positive: list[npt.NDArray[np.bool_]] = []
        self._scores: list[npt.NDArray[np.float32]] = []

    def add(
        self,
        labels: Mapping[str, npt.NDArray[Any]],
        predictions: Mapping[str, npt.NDArray[np.float32]],
    ) -> None:
        """Takes those of some records.

        Args:
            labels: By name, `[n, ...]`; none where they are not known.
            predictions: By name, `[n, ...]`.
        """
        self._reason = self._reason or self._why_not(labels, predictions)
        if self._reason:
            self._positive, self._scores = [], []
            return
        [truth], [scores] = labels.values(), predictions.values()
        self._positive.append(truth.reshape(-1) == 1)
        self._scores.append(scores.reshape(-1))

    def result(self) -> tuple[float | None, str]:
        """The AUC, or None and the reason."""
        if self._reason:
            return None, self._reason
        positive = np.concatenate(self._positive)
        if positive.all() or not positive.any():
            return None, "not defined: all labels are equal"
        value = metrics.auc(positive, np.concatenate(self._scores))
        return (None, "not defined: a prediction is nan") if math.isnan(value) else (value, "")

    def _why_not(
        self,
        labels: Mapping[str, npt.NDArray[Any]],
        predictions: Mapping[str, npt.NDArray[np.float32]],
    ) -> str:
        if not labels:
            return "not known without labels"
        if len(labels) > 1 or len(predictions) > 1:
            return "not defined for several labels or predictions"
        [truth], [scores] = labels.values(), predictions.values()
        if scores.size != len(scores) or truth.size != len(truth):
            return "not defined for vectors"
        if truth.dtype == object or not np.isin(truth, (0, 1)).all():
            return "not defined: labels are not 0 and 1"
        self._records += len(truth)
        if self._records > _MOST_RECORDS:
            return f"not computed for more than {_MOST_RECORDS:,} records"
        return ""
