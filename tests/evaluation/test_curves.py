"""ROC and calibration of scores, beside scikit-learn's."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_curve

from tfps.evaluation.accumulators import RunningAuc
from tfps.evaluation.curves import ScoreCurves


def drawn(records: int, decimals: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores; a score is the square root of the chance of a positive."""
    random = np.random.default_rng(0)
    scores = random.beta(1, 3, records).round(decimals).astype(np.float32)
    return (random.random(records) < scores**2).astype(np.int64), scores


def curves_of(labels: np.ndarray, scores: np.ndarray, exact_records: int) -> ScoreCurves:
    running = RunningAuc(exact_records)
    for first in range(0, len(labels), 7000):
        running.add(labels[first : first + 7000], scores[first : first + 7000])
    found = running.curves()
    assert found
    return found


@pytest.mark.parametrize("exact_records", [1 << 20, 10_000])
@pytest.mark.parametrize("decimals", [1, 6])
def test_curves_are_scikit_learns(exact_records: int, decimals: int) -> None:
    """Counts by score move a point by no more than two of 300 records between two edges."""
    labels, scores = drawn(50_000, decimals)
    found = curves_of(labels, scores, exact_records)
    x, y, _ = roc_curve(labels, scores, drop_intermediate=False)
    roc = np.array(found.roc)
    assert 5 < len(roc) <= 101
    assert found.roc[0] == [0, 0]
    assert found.roc[-1] == [1, 1]
    on_curve = np.abs(x[:, None] - roc[:, 0]) + np.abs(y[:, None] - roc[:, 1])
    assert on_curve.min(0).max() < 2e-3
    predicted, positive = np.array(found.calibration).T
    if decimals == 6:
        theirs, mean = calibration_curve(labels, scores, n_bins=10, strategy="quantile")
        np.testing.assert_allclose(predicted, mean, atol=5e-3)
        np.testing.assert_allclose(positive, theirs, atol=5e-3)
    else:  # equal scores share a bin
        assert len(predicted) < 10
        np.testing.assert_allclose(positive, predicted**2, atol=0.05)


def test_scores_that_are_no_probabilities_have_no_calibration() -> None:
    labels, scores = drawn(1000)
    assert curves_of(labels, scores * 2 - 1, 1 << 20).calibration == []


@pytest.mark.parametrize("spoil", ["nan", "one class", "no record"])
def test_no_curve(spoil: str) -> None:
    labels, scores = drawn(100)
    running = RunningAuc()
    if spoil == "nan":
        scores[3] = np.nan
    if spoil != "no record":
        running.add(labels * (spoil == "nan"), scores)
    assert running.curves() is None
