"""How good the scores of a yes-or-no label are, in few points: ROC and calibration."""

from typing import NamedTuple, Self

import numpy as np

_ROC_POINTS = 100
_BINS = 10
_DIGITS = 6


class ScoreCurves(NamedTuple):
    """Points `[x, y]` of the curves of some records' scores."""

    roc: list[list[float]]  # shares of negatives and positives that score no less than a threshold
    # Mean score and share of positives of each tenth of the records by score; none where scores are
    # no probabilities.
    calibration: list[list[float]]

    @classmethod
    def of(cls, scores: np.ndarray, negatives: np.ndarray, positives: np.ndarray) -> Self | None:
        """Those of counts `[n]` at ascending scores `[n]`; None if a class is absent."""
        if not negatives.sum() or not positives.sum():
            return None
        return cls(_roc(negatives, positives), _calibration(scores, negatives, positives))


def _roc(negatives: np.ndarray, positives: np.ndarray) -> list[list[float]]:
    """From no record to all, about evenly along the curve."""
    x, y = (
        np.concatenate([[0], np.cumsum(counts[::-1])]) / counts.sum()
        for counts in (negatives, positives)
    )
    places = np.searchsorted(x + y, np.linspace(0.0, 2.0, _ROC_POINTS + 1))
    kept = np.unique(np.minimum(places, len(x) - 1))
    return _points(x[kept], y[kept])


def _calibration(
    scores: np.ndarray, negatives: np.ndarray, positives: np.ndarray
) -> list[list[float]]:
    if scores[0] < 0 or scores[-1] > 1:
        return []
    records = negatives + positives
    middle = np.cumsum(records) - records / 2  # equal scores go into one bin
    bins = np.minimum(middle * _BINS // records.sum(), _BINS - 1).astype(np.int64)
    total, of_scores, of_positives = (
        np.bincount(bins, weights, _BINS)
        for weights in (records, records * scores.astype("f8"), positives)
    )
    filled = total > 0
    return _points(of_scores[filled] / total[filled], of_positives[filled] / total[filled])


def _points(x: np.ndarray, y: np.ndarray) -> list[list[float]]:
    return [[round(float(a), _DIGITS), round(float(b), _DIGITS)] for a, b in zip(x, y, strict=True)]
