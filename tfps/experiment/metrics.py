"""Exact metrics of all labels and predictions of an evaluation."""

import abc
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from tfps.data.feature import Feature

_CHUNK = 1 << 16  # positives that are ranked, or values that are widened, at once
_AMBIGUOUS = ("crossentropy", "ce")  # the outputs' shape decides which of the three
_SMALLEST = 1e-7  # the chance that a prediction of none or of certainty is taken for, as in Keras


def auc(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Area under the ROC curve: the chance that a positive is ranked above a negative.

    A tie counts one half. This is the Mann-Whitney statistic: with `P` positives and `N` negatives,
    `AUC = U / (P N)`, where `U` adds up, for each positive, the negatives that it is ranked above
    (Hanley and McNeil, Radiology 143, 1982). `U` is exact. Beside its input it takes the memory of
    the predictions once more and a few bytes per record.

    Args:
        labels: 0 or 1, shape `[n]` or `[n, 1]`.
        predictions: Any scores, shape `[n]` or `[n, 1]`; higher means more likely 1.
    """
    is_positive, scores = as_binary(labels, predictions)
    positives, negatives = scores[is_positive], scores[~is_positive]
    if not positives.size or not negatives.size or np.isnan(scores).any():
        return math.nan
    positives.sort()
    negatives.sort()
    twice_above = sum(
        _below(negatives, positives[first : first + _CHUNK])
        for first in range(0, positives.size, _CHUNK)
    )
    return twice_above / 2 / (positives.size * negatives.size)


def accuracy(labels: npt.ArrayLike, predictions: npt.ArrayLike, threshold: float = 0.5) -> float:
    """Share of records whose prediction lies on the label's side of the threshold.

    Args:
        labels: 0 or 1, shape `[n]` or `[n, 1]`.
        predictions: Probabilities, shape `[n]` or `[n, 1]`.
        threshold: A prediction above it says 1.

    Returns:
        The share in [0, 1], or nan when there is no record or a prediction is nan.
    """
    is_positive, scores = as_binary(labels, predictions)
    if not scores.size or np.isnan(scores).any():
        return math.nan
    return float(np.mean((scores > np.float64(threshold)) == is_positive))


def class_accuracy(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Share of labels whose class has the largest prediction.

    Args:
        labels: Numbers of classes, `[n, ...]`; or a value per class, the largest of which counts,
            of the shape of the predictions.
        predictions: A value per class, `[n, ..., classes]`; or of two classes the probability of
            the second, `[n, ...]`.

    Returns:
        The share in [0, 1], or nan when there is no label or a prediction is nan.
    """
    truth, scores = np.asarray(labels), np.asarray(predictions)
    if scores.size == truth.size and scores.shape[-1:] in ((1,), truth.shape[-1:]):
        if truth.ndim < 2 or truth.shape[-1] == 1:
            return accuracy(truth, scores)
        truth = truth.argmax(-1)
    found = scores.argmax(-1) if scores.ndim > 1 else scores
    if scores.ndim < 2 or truth.size != found.size:
        raise ValueError(f"the labels are {_shape_of(truth)}, the predictions {_shape_of(scores)}")
    if not truth.size or np.isnan(scores).any():
        return math.nan
    return float(np.mean(found.reshape(-1) == truth.reshape(-1)))


def mean_squared_error(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Mean square of labels `[n, ...]` less predictions, of their shape but for dimensions of 1."""
    return _mean_over_values(np.square, labels, predictions)


def mean_absolute_error(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Mean distance of labels `[n, ...]` and predictions, of their shape but for 1s."""
    return _mean_over_values(np.abs, labels, predictions)


def as_binary(
    labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[np.bool_], np.ndarray]:
    """Labels, 0 or 1 of any shape, as booleans, and predictions; both `[n]`."""
    flat_labels = np.asarray(labels).reshape(-1)
    scores = np.asarray(predictions).reshape(-1)
    if flat_labels.size != scores.size:
        raise ValueError(f"{flat_labels.size} labels but {scores.size} predictions")
    is_positive = flat_labels == 1
    if not (is_positive | (flat_labels == 0)).all():
        raise ValueError("a label is neither 0 nor 1")
    return is_positive, scores


def _mean_over_values(
    measure: Callable[[np.ndarray], np.ndarray], labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> float:
    truth, found = np.asarray(labels), np.asarray(predictions)
    if [x for x in truth.shape[1:] if x != 1] != [x for x in found.shape[1:] if x != 1]:
        raise ValueError(f"the labels are {_shape_of(truth)}, the predictions {_shape_of(found)}")
    if len(truth) != len(found):
        raise ValueError(f"{len(truth)} labels but {len(found)} predictions")
    if not truth.size:
        return math.nan
    truth, found = truth.reshape(-1), found.reshape(-1)
    total = 0.0
    for first in range(0, truth.size, _CHUNK):
        some = slice(first, first + _CHUNK)
        total += float(measure(found[some].astype("f8") - truth[some].astype("f8")).sum())
    return total / truth.size


def _shape_of(values: np.ndarray) -> str:
    return "[" + ", ".join(map(str, values.shape)) + "]"


def _below(sorted_scores: np.ndarray, of: np.ndarray) -> int:
    """How many scores lie below each of some, added up; twice, so that equal ones count once."""
    found = (np.searchsorted(sorted_scores, of, side) for side in ("left", "right"))
    return sum(int(places.sum()) for places in found)


_YES_OR_NO = {"auc": auc, "accuracy": accuracy}


_NUMBER = {"mse": mean_squared_error, "mae": mean_absolute_error}


_CLASS = {"accuracy": class_accuracy}


_BY_LOSS: dict[type[keras.losses.Loss], Mapping[str, Any]] = {
    keras.losses.BinaryCrossentropy: _YES_OR_NO,
    keras.losses.BinaryFocalCrossentropy: _YES_OR_NO,
    keras.losses.SparseCategoricalCrossentropy: _CLASS,
    keras.losses.CategoricalCrossentropy: _CLASS,
    keras.losses.CategoricalFocalCrossentropy: _CLASS,
    keras.losses.MeanSquaredError: _NUMBER,
    keras.losses.MeanAbsoluteError: _NUMBER,
    keras.losses.MeanAbsolutePercentageError: _NUMBER,
    keras.losses.MeanSquaredLogarithmicError: _NUMBER,
    keras.losses.Huber: _NUMBER,
    keras.losses.LogCosh: _NUMBER,
    keras.losses.Poisson: _NUMBER,
}


# Keras has a function for each of these classes: of `MeanSquaredError` it is `mean_squared_error`.
_BY_FUNCTION = {
    getattr(keras.losses, re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).lower()): measured
    for kind, measured in _BY_LOSS.items()
}


def default_metrics(label: Feature, loss: Any) -> dict[str, Any]:
    """Metrics by name, callables of all values of a label and all its predictions.

    The loss, one of Keras's or None, decides. Without it, ids below 2 are answers of yes or no, and
    float32 is a number. For anything else only the loss is measured.
    """
    if isinstance(loss, str) and loss.lower() not in _AMBIGUOUS:
        loss = keras.losses.get(loss)
    function = getattr(loss, "fn", loss)
    by_function = _BY_FUNCTION.get(function) if inspect.isfunction(function) else None
    by_loss = _BY_LOSS.get(type(loss)) or by_function
    if by_loss is not None:
        return dict(by_loss)
    if label.vocabulary_size == 2:
        return dict(_YES_OR_NO)
    return dict(_NUMBER) if label.dtype == "float32" else {}


class SummedMetric(abc.ABC):
    """A metric of an evaluation whose parts are summed up one after the other."""

    def __call__(self, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
        """The metric of all labels and predictions, as of `sums`."""
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
