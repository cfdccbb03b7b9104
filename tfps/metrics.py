"""Exact metrics of all labels and predictions of an evaluation."""

import math

import numpy as np
import numpy.typing as npt


def auc(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Area under the ROC curve: the chance that a positive is ranked above a negative.

    A tie counts one half. This is the Mann-Whitney statistic by ranks: with `P` positives, `N`
    negatives and `R` the sum of the positives' ranks (ties share their mean rank),
    `AUC = (R - P (P + 1) / 2) / (P N)` (Hanley and McNeil, Radiology 143, 1982).

    Args:
        labels: 0 or 1, shape `[n]` or `[n, 1]`.
        predictions: Any scores, shape `[n]` or `[n, 1]`; higher means more likely 1.

    Returns:
        The area, or nan when a class is absent or a prediction is nan.

    Raises:
        ValueError: If the sizes differ or a label is neither 0 nor 1.
    """
    positive, scores = _binary(labels, predictions)
    positives = int(positive.sum())
    negatives = positive.size - positives
    if positives == 0 or negatives == 0 or np.isnan(scores).any():
        return math.nan
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(counts)
    mean_rank = last_rank - (counts - 1) / 2
    rank_sum = float(mean_rank[group][positive].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def accuracy(labels: npt.ArrayLike, predictions: npt.ArrayLike, threshold: float = 0.5) -> float:
    """Share of records whose prediction lies on the label's side of the threshold.

    Args:
        labels: 0 or 1, shape `[n]` or `[n, 1]`.
        predictions: Probabilities, shape `[n]` or `[n, 1]`.
        threshold: A prediction above it says 1.

    Returns:
        The share in [0, 1], or nan when there is no record or a prediction is nan.

    Raises:
        ValueError: If the sizes differ or a label is neither 0 nor 1.
    """
    positive, scores = _binary(labels, predictions)
    if not scores.size or np.isnan(scores).any():
        return math.nan
    return float(np.mean((scores > threshold) == positive))


def _binary(
    labels: npt.ArrayLike, predictions: npt.ArrayLike
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Labels as booleans and predictions as float64, both of shape `[n]`."""
    flat_labels = np.asarray(labels).reshape(-1)
    scores = np.asarray(predictions, dtype=np.float64).reshape(-1)
    if flat_labels.size != scores.size:
        raise ValueError(f"{flat_labels.size} labels but {scores.size} predictions")
    if not np.isin(flat_labels, (0, 1)).all():
        raise ValueError("a label is neither 0 nor 1")
    return flat_labels == 1, scores
