"""Curves of how well chances of yes or no fit what came."""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tfps.experiment import metrics


class RocCurve(NamedTuple):
    """Whom a threshold takes for a yes, for every threshold that makes a difference.

    Attributes:
        thresholds: `[k]`, falling; the first is above all predictions.
        false_positives: Of the negatives, the share whose prediction is at least the threshold.
        true_positives: The same of the positives.
        auc: The exact area below the curve.
    """

    thresholds: npt.NDArray[np.float64]
    false_positives: npt.NDArray[np.float64]
    true_positives: npt.NDArray[np.float64]
    auc: float

    @classmethod
    def of(cls, labels: npt.ArrayLike, predictions: npt.ArrayLike) -> Self:
        """The curve of labels and predictions; records that tie share a point.

        Args:
            labels: 0 or 1, shape `[n]` or `[n, 1]`.
            predictions: Any scores, of the same shape; higher means more likely 1.

        Raises:
            ValueError: If the sizes differ, a label is neither 0 nor 1, a class is absent or a
                prediction is nan.
        """
        is_positive, scores = metrics.as_binary(labels, predictions)
        area = metrics.auc(labels, predictions)
        if np.isnan(area):
            raise ValueError("a class is absent, or a prediction is nan")
        order = np.argsort(-scores, kind="stable")
        ordered = scores[order].astype("f8")
        is_last = np.append(ordered[1:] != ordered[:-1], True)  # of those that tie
        taken = np.cumsum(is_positive[order])[is_last]
        records = np.flatnonzero(is_last) + 1
        return cls(
            np.concatenate([[np.inf], ordered[is_last]]),
            np.concatenate([[0.0], (records - taken) / np.count_nonzero(~is_positive)]),
            np.concatenate([[0.0], taken / np.count_nonzero(is_positive)]),
            area,
        )


class CalibrationCurve(NamedTuple):
    """Of records with like predictions, how many were predicted to be a yes and how many were.

    Attributes:
        edges: `[bins + 1]`, from 0 to 1; a bin takes its lower edge, the last one 1 too.
        records: `[bins]`, how many there are.
        predicted: `[bins]`, the mean prediction; nan of a bin without records.
        observed: `[bins]`, the share of positives; nan of a bin without records.
        error: The expected calibration error: the mean over records of the distance between
            their bin's two values (Naeini et al., AAAI 2015).
    """

    edges: npt.NDArray[np.float64]
    records: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.float64]
    observed: npt.NDArray[np.float64]
    error: float

    @classmethod
    def of(cls, labels: npt.ArrayLike, predictions: npt.ArrayLike, bins: int = 10) -> Self:
        """The curve of labels and predictions.

        Args:
            labels: 0 or 1, shape `[n]` or `[n, 1]`.
            predictions: Chances of a 1, of the same shape.
            bins: How many bins of equal width there are.

        Raises:
            ValueError: If the sizes differ, a label is neither 0 nor 1, or a prediction is no
                chance.
        """
        is_positive, scores = metrics.as_binary(labels, predictions)
        chances = scores.astype("f8")
        if not ((chances >= 0) & (chances <= 1)).all():
            raise ValueError("a prediction is no chance between 0 and 1")
        edges = np.linspace(0.0, 1.0, bins + 1)
        places = np.clip(np.searchsorted(edges, chances, side="right") - 1, 0, bins - 1)
        records = np.bincount(places, minlength=bins)
        with np.errstate(invalid="ignore"):
            predicted = np.bincount(places, chances, bins) / records
            observed = np.bincount(places, is_positive, bins) / records
        error = np.nansum(np.abs(predicted - observed) * records) / max(1, len(chances))
        return cls(edges, records, predicted, observed, float(error))
