"""Curves of labels and predictions, against what can be counted by hand."""

import numpy as np
import pytest

from tfps.analysis.curves import CalibrationCurve, RocCurve
from tfps.experiment import metrics


def test_a_roc_curve_by_hand_where_two_records_tie():
    curve = RocCurve.of([1, 0, 1, 0], [0.9, 0.5, 0.5, 0.1])
    assert curve.thresholds.tolist() == [np.inf, 0.9, 0.5, 0.1]
    assert curve.false_positives.tolist() == [0.0, 0.0, 0.5, 1.0]
    assert curve.true_positives.tolist() == [0.0, 0.5, 1.0, 1.0]
    assert curve.auc == 0.875


@pytest.mark.parametrize("seed", range(5))
def test_its_area_is_the_auc_and_its_points_are_what_thresholds_do(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 300)
    scores = np.float32(rng.integers(0, 40, 300) / 40)  # many ties
    curve = RocCurve.of(labels[:, None], scores[:, None])
    area = np.trapezoid(curve.true_positives, curve.false_positives)
    assert area == pytest.approx(curve.auc, abs=1e-12)
    assert curve.auc == metrics.auc(labels, scores)
    for threshold, false, true in zip(*curve[:3], strict=True):
        taken = scores >= threshold
        assert false == np.mean(taken[labels == 0])
        assert true == np.mean(taken[labels == 1])


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([1, 1], [0.1, 0.2], "a class is absent"),
        ([0, 1], [0.1, np.nan], "a prediction is nan"),
        ([0, 2], [0.1, 0.2], "neither 0 nor 1"),
    ],
)
def test_there_is_no_roc_curve_of_these(labels, scores, message):
    with pytest.raises(ValueError, match=message):
        RocCurve.of(labels, scores)


def test_a_calibration_curve_by_hand():
    curve = CalibrationCurve.of([0, 1, 0, 1, 1], [0.0, 0.1, 0.25, 0.75, 1.0], bins=4)
    assert curve.edges.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert curve.records.tolist() == [2, 1, 0, 2]
    np.testing.assert_allclose(curve.predicted, [0.05, 0.25, np.nan, 0.875])
    np.testing.assert_allclose(curve.observed, [0.5, 0.0, np.nan, 1.0])
    assert curve.error == pytest.approx((2 * 0.45 + 1 * 0.25 + 2 * 0.125) / 5)


def test_chances_that_come_true_have_next_to_no_error():
    rng = np.random.default_rng(0)
    chances = rng.random(200_000)
    labels = rng.random(200_000) < chances
    assert CalibrationCurve.of(labels, chances).error < 0.005
    assert CalibrationCurve.of(labels, np.sqrt(chances)).error > 0.1


@pytest.mark.parametrize("bad", [1.5, -0.1, np.nan])
def test_what_is_no_chance_is_not_calibrated(bad):
    with pytest.raises(ValueError, match="no chance between 0 and 1"):
        CalibrationCurve.of([0, 1], [0.5, bad])
