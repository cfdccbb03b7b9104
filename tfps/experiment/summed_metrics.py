"""Metrics that follow from sums over records: of any number of them, they take no memory."""

import abc
import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tfps.experiment.metrics import as_binary

_SMALLEST = 1e-7  # the chance that a prediction of none or of certainty is taken for, as in Keras


class SummedMetric(abc.ABC):
    """A metric of an evaluation whose parts are summed up one after the other."""

    def __call__(self, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
        """The metric of all labels and predictions.

        Args:
            labels: As of `sums`.
            predictions: As of `sums`.

        Raises:
            ValueError: As `sums`.
        """
        return self.value(self.sums(labels, predictions))

    @abc.abstractmethod
    def sums(self, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> np.ndarray:
        """Sums over some records, `[k]` float64; those of others are added.

        Args:
            labels: 0 or 1, shape `[n]` or `[n, 1]`.
            predictions: Chances of a 1, of the same shape.

        Raises:
            ValueError: If the sizes differ, a label is neither 0 nor 1, or a prediction is no
                chance.
        """

    @abc.abstractmethod
    def value(self, sums: np.ndarray) -> float:
        """The metric of all records, from their sums; nan where it is not defined."""


@dataclasses.dataclass(frozen=True)
class LogLoss(SummedMetric):
    """The mean over records of minus the logarithm of the chance that the label was given.

    Without weights and regularizers, which the loss of an evaluation may have. Chances are kept
    1e-7 away from 0 and 1, as Keras's `BinaryCrossentropy` keeps them.
    """

    def sums(self, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> np.ndarray:
        """The loss, and how many records there are."""
        is_positive, chances = _chances(labels, predictions)
        return np.array([_log_loss(is_positive, chances), len(chances)])

    def value(self, sums: np.ndarray) -> float:
        """See `SummedMetric`."""
        loss, records = sums
        return float(loss / records) if records else math.nan


@dataclasses.dataclass(frozen=True)
class NormalizedEntropy(SummedMetric):
    """The log loss by that of predicting the labels' mean for every record; lower is better.

    As in He et al., "Practical Lessons from Predicting Clicks on Ads at Facebook", ADKDD 2014,
    section 3: unlike the log loss it does not depend on how rare positives are.
    """

    def sums(self, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> np.ndarray:
        """The loss, and how many positives and records there are."""
        is_positive, chances = _chances(labels, predictions)
        return np.array([_log_loss(is_positive, chances), is_positive.sum(), len(chances)])

    def value(self, sums: np.ndarray) -> float:
        """See `SummedMetric`; where all labels are equal, it is not defined."""
        loss, positives, records = sums
        if not 0 < positives < records:
            return math.nan
        mean = positives / records
        entropy = -(mean * math.log(mean) + (1 - mean) * math.log1p(-mean))
        return float(loss / records / entropy)


@dataclasses.dataclass(frozen=True)
class Calibration(SummedMetric):
    """How many positives were expected for each that came: the predictions' sum by the labels'.

    As in He et al., "Practical Lessons from Predicting Clicks on Ads at Facebook", ADKDD 2014,
    section 3; best at 1.
    """

    def sums(self, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> np.ndarray:
        """The predictions' and the labels'."""
        is_positive, chances = _chances(labels, predictions)
        return np.array([chances.sum(), is_positive.sum()])

    def value(self, sums: np.ndarray) -> float:
        """See `SummedMetric`; without a positive it is not defined."""
        expected, positives = sums
        return float(expected / positives) if positives else math.nan


def _log_loss(is_positive: np.ndarray, chances: np.ndarray) -> float:
    given = np.where(is_positive, chances, 1.0 - chances)
    return float(-np.log(np.clip(given, _SMALLEST, 1.0 - _SMALLEST)).sum())


def _chances(
    labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[np.bool_], np.ndarray]:
    """Labels as booleans and predictions as float64, both `[n]`."""
    is_positive, scores = as_binary(labels, predictions)
    chances = scores.astype("f8")
    if ((chances < 0) | (chances > 1)).any():
        bad = chances[np.flatnonzero((chances < 0) | (chances > 1))[0]]
        raise ValueError(
            f"a prediction is {bad:g}, which is no chance between 0 and 1; let predictions() give "
            "the sigmoid of logits"
        )
    return is_positive, chances
