"""The labels and predictions of one label, and what can be measured of them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tfps.errors import UserError
from tfps.experiment import metrics

Predictions = Mapping[str, npt.NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class Measure:
    """A metric of some records' predictions.

    Attributes:
        name: Its name, for people.
        short_name: Its name in a job's report, if the task measures it by default.
        of: Its value, of predictions `[n, ...]`.
        is_error: Whether lower is better.
    """

    name: str
    short_name: str
    of: Callable[[npt.ArrayLike], float]
    is_error: bool = False

    def goodness(self, predictions: npt.ArrayLike) -> float:
        """The value, or of an error minus the value: higher is better."""
        return -self.of(predictions) if self.is_error else self.of(predictions)


@dataclasses.dataclass(frozen=True)
class Answers:
    """What was asked of a model and what it answered, for one label.

    Attributes:
        label: Name of the label; empty where the labels are not known.
        output: Name of its prediction.
        labels: `[n, ...]`; where they are not known, nothing.
        predictions: `[n, ...]` float32.
        why_not: In a sentence, why there is no yes or no to rank; empty where every label is 0 or
            1, both are there, and each has one prediction.
        why_not_chances: In a sentence, why predictions are no chances of a yes; empty where they
            are.
    """

    label: str
    output: str
    labels: npt.NDArray[Any]
    predictions: npt.NDArray[np.float32]
    why_not: str
    why_not_chances: str

    @classmethod
    def of(
        cls, labels: Mapping[str, npt.NDArray[Any]], predictions: Predictions, label: str = ""
    ) -> Self:
        """The answers for one of the labels.

        Args:
            labels: By name, `[n, ...]`; none where they are not known.
            predictions: By name, `[n, ...]`; of several, that of the label's own name counts.
            label: Its name; empty for the first that has a prediction.

        Raises:
            UserError: If there is no such label, or no prediction of it.
        """
        single = next(iter(predictions)) if len(predictions) == 1 else ""
        known = [name for name in labels if single or name in predictions]
        if not labels and not label:
            output = single or next(iter(predictions))
            why = "The data have no labels, so ROC, calibration and AUC are not known."
            return cls("", output, np.zeros([0]), predictions[output], why, why)
        chosen = label or (known[0] if known else "")
        if chosen not in known:
            raise UserError(
                f"there is no label {chosen!r} with a prediction: the labels are "
                f"{', '.join(labels) or 'not known'}, the predictions {', '.join(predictions)}"
            )
        output = chosen if chosen in predictions else single
        return cls._of(chosen, output, labels[chosen], predictions[output])

    @classmethod
    def _of(
        cls,
        label: str,
        output: str,
        labels: npt.NDArray[Any],
        predictions: npt.NDArray[np.float32],
    ) -> Self:
        why = _why_not(label, labels, predictions)
        why_not_chances = why or _why_not_chances(label, predictions)
        return cls(label, output, labels, predictions, why, why_not_chances)

    @property
    def are_numbers(self) -> bool:
        """Whether there is one number for each record that predicts another."""
        return (
            bool(self.label)
            and self.labels.dtype.kind in "iuf"
            and self.labels.size == len(self.labels)
            and self.predictions.size == len(self.predictions)
        )

    @property
    def yes(self) -> npt.NDArray[np.bool_]:
        """Which labels are 1, `[n]`; for yes or no alone."""
        return np.asarray(self.labels).reshape(-1) == 1

    @property
    def scores(self) -> npt.NDArray[np.float32]:
        """The predictions, `[n]`; for yes or no alone."""
        return np.asarray(self.predictions).reshape(-1)

    @property
    def measure(self) -> Measure | None:
        """What is measured of them: AUC, accuracy of classes, or errors; None for nothing known."""
        if not self.why_not:
            return Measure("AUC", "auc", lambda found: metrics.auc(self.yes, found))
        if self.label and self.labels.dtype.kind in "iu" and self._are_classes:
            classes = self.labels
            return Measure(
                "accuracy", "accuracy", lambda found: metrics.class_accuracy(classes, found)
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
        """Those of some records.

        Args:
            numbers: Of the records.
        """
        if not self.label:
            return dataclasses.replace(self, predictions=self.predictions[numbers])
        return self._of(self.label, self.output, self.labels[numbers], self.predictions[numbers])

    def given(self, predictions: Predictions) -> npt.NDArray[np.float32]:
        """What the model predicts of this label, `[n, ...]`.

        Args:
            predictions: All that it predicts of any records, by name.
        """
        return predictions[self.output]

    def numbers(self, predictions: Predictions, value: int = 0) -> npt.NDArray[np.float32]:
        """One number for each record, `[n]`.

        Args:
            predictions: All that the model predicts of any records, by name.
            value: Which one, of a prediction of several, laid end to end.
        """
        found = self.given(predictions)
        return found.reshape(len(found), -1)[:, value]

    @property
    def _are_classes(self) -> bool:
        """Whether there is a value for each class, of which the label is one."""
        several = self.predictions.ndim > 1 and self.predictions.shape[-1] > 1
        return several and self.labels.size == self.predictions.size // self.predictions.shape[-1]


def _why_not(label: str, labels: npt.NDArray[Any], predictions: npt.NDArray[np.float32]) -> str:
    ending = "so ROC, calibration and AUC do not apply to it."
    if predictions.size != len(predictions) or labels.size != len(labels):
        each = predictions.size // max(1, len(predictions))
        return f"The label {label!r} is predicted by {each:,} values for each record, {ending}"
    if labels.dtype.kind not in "iufb" or not np.isin(labels, (0, 1)).all():
        return f"The label {label!r} is not yes or no (1 or 0), {ending}"
    if len(np.unique(labels)) < 2:
        return f"All labels {label!r} are equal, {ending}"
    return ""


def _why_not_chances(label: str, predictions: npt.NDArray[np.float32]) -> str:
    if ((predictions >= 0) & (predictions <= 1)).all():
        return ""
    return (
        f"The predictions of {label!r} are no chances between 0 and 1, so calibration does not "
        "apply to them."
    )
