"""The labels and predictions of one label, and what can be measured of them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tfps.errors import UserError
from tfps.experiment import metrics

Predictions = Mapping[str, npt.NDArray[np.float32]]


class Measure(NamedTuple):
    """A metric of some records' predictions."""

    name: str
    short_name: str  # in a job's report
    of: Callable[[npt.ArrayLike], float]  # its value, of predictions `[n, ...]`
    is_error: bool = False

    def goodness(self, predictions: npt.ArrayLike) -> float:
        """The value, of an error its negative: higher is better."""
        return -self.of(predictions) if self.is_error else self.of(predictions)


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model predicts of records, next to what came, for one label."""

    label: str  # empty where labels are not known
    output: str
    labels: npt.NDArray[Any]  # `[n, ...]`, empty where they are not known
    predictions: npt.NDArray[np.float32]

    @classmethod
    def of(
        cls, labels: Mapping[str, npt.NDArray[Any]], predictions: Predictions, label: str = ""
    ) -> Self:
        """The answers for one label, or the first with a prediction; arrays `[n, ...]` by name."""
        single = next(iter(predictions)) if len(predictions) == 1 else ""
        known = [name for name in labels if single or name in predictions]
        if not labels and not label:
            output = single or next(iter(predictions))
            return cls("", output, np.zeros([0]), predictions[output])
        chosen = label or (known[0] if known else "")
        if chosen not in known:
            raise UserError(
                f"there is no label {chosen!r} with a prediction: the labels are "
                f"{', '.join(labels) or 'not known'}, the predictions {', '.join(predictions)}"
            )
        output = chosen if chosen in predictions else single
        return cls(chosen, output, labels[chosen], predictions[output])

    @property
    def why_not(self) -> str:
        """Why there is no yes or no to rank; empty where labels are 0 and 1 with a score each."""
        ending = "so ROC, calibration and AUC do not apply to it."
        if not self.label:
            return "The data have no labels, so ROC, calibration and AUC are not known."
        if not self._are_single:
            each = f"{self.predictions.size // max(1, len(self.predictions)):,} values"
            return f"The label {self.label!r} is predicted by {each} for each record, {ending}"
        if self.labels.dtype.kind not in "iufb" or not np.isin(self.labels, (0, 1)).all():
            return f"The label {self.label!r} is not yes or no (1 or 0), {ending}"
        if len(np.unique(self.labels)) < 2:
            return f"All labels {self.label!r} are equal, {ending}"
        return ""

    @property
    def why_not_chances(self) -> str:
        """Why predictions are no chances of a yes; empty where they are."""
        if self.why_not or ((self.predictions >= 0) & (self.predictions <= 1)).all():
            return self.why_not
        return (
            f"The predictions of {self.label!r} are no chances between 0 and 1, so calibration "
            "does not apply to them."
        )

    @property
    def are_numbers(self) -> bool:
        """Whether there is one number for each record that predicts another."""
        return bool(self.label) and self.labels.dtype.kind in "iuf" and self._are_single

    @property
    def yes(self) -> npt.NDArray[np.bool_]:
        """Which labels are 1, `[n]`; for yes or no alone."""
        return np.asarray(self.labels).reshape(-1) == 1

    @property
    def scores(self) -> npt.NDArray[np.float32]:
        """The predictions, `[n]`; for one number per record alone."""
        return np.asarray(self.predictions).reshape(-1)

    @property
    def measure(self) -> Measure | None:
        """AUC, accuracy of classes, or errors; None where nothing can be measured."""
        if not self.why_not:
            return Measure("AUC", "auc", lambda found: metrics.auc(self.yes, found))
        if self.label and self.labels.dtype.kind in "iu" and self._are_classes:
            return Measure(
                "accuracy", "accuracy", lambda found: metrics.class_accuracy(self.labels, found)
            )
        if self.are_numbers:
            truth = self.labels.reshape(-1)
            return Measure(
                "mean absolute error",
                "mae",
                lambda found: metrics.mean_absolute_error(truth, np.reshape(found, -1)),
                is_error=True,
            )
        return None

    def take(self, numbers: npt.NDArray[np.int64]) -> Self:
        """Those of the records of these numbers."""
        labels = self.labels[numbers] if self.label else self.labels
        return dataclasses.replace(self, labels=labels, predictions=self.predictions[numbers])

    def given(self, predictions: Predictions) -> npt.NDArray[np.float32]:
        """This label's, of all predictions of any records: `[n, ...]`."""
        return predictions[self.output]

    def numbers(self, predictions: Predictions, value: int = 0) -> npt.NDArray[np.float32]:
        """One number for each record, `[n]`: of a prediction of several values, which one."""
        found = self.given(predictions)
        return found.reshape(len(found), -1)[:, value]

    @property
    def _are_single(self) -> bool:
        count = len(self.predictions)
        return self.labels.size == len(self.labels) and self.predictions.size == count

    @property
    def _are_classes(self) -> bool:
        """Whether there is a value for each class, and the label is a class."""
        several = self.predictions.ndim > 1 and self.predictions.shape[-1] > 1
        return several and self.labels.size == self.predictions.size // self.predictions.shape[-1]
