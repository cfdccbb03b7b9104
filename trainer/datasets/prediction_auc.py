"""The AUC of predictions that come bit by bit."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfps.evaluation.accumulators import BoundedAuc, RunningAuc

_EXACT_RECORDS = 100_000_000  # 5 bytes each are held until all are known


class PredictionAuc:
    """The AUC of labels and predictions, where one is defined of them."""

    def __init__(self) -> None:
        self._reason = ""
        self._running = RunningAuc(_EXACT_RECORDS)
        self._found: set[int] = set()  # labels

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
            self._running = RunningAuc()  # nothing is held any more
            return
        [truth], [scores] = labels.values(), predictions.values()
        self._found.update(np.unique(truth).tolist())
        self._running.add(truth, scores)

    def result(self) -> tuple[BoundedAuc | None, str]:
        """The AUC, or None and the reason."""
        if self._reason:
            return None, self._reason
        if len(self._found) < 2:
            return None, "not defined: all labels are equal"
        found = self._running.result()
        if math.isnan(found.value):
            return None, "not defined: a prediction is nan"
        return found, ""

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
        return ""
