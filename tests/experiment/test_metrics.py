import math
import tracemalloc

import numpy as np
import pytest

from tfps.experiment import metrics


def brute_force_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    positives, negatives = scores[labels == 1], scores[labels == 0]
    wins = sum(
        1.0 if positive > negative else 0.5 if positive == negative else 0.0
        for positive in positives
        for negative in negatives
    )
    return wins / (len(positives) * len(negatives))


@pytest.mark.parametrize("distinct", [2, 5, 1000])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_auc_equals_a_count_of_all_pairs(dtype: str, seed: int, distinct: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, 150)
    scores = (generator.integers(0, distinct, 150) / distinct).astype(dtype)
    assert metrics.auc(labels, scores) == pytest.approx(brute_force_auc(labels, scores), abs=1e-12)


def test_auc_of_perfect_reversed_and_constant_scores() -> None:
    assert metrics.auc([0, 0, 1], [0.1, 0.2, 0.3]) == 1.0
    assert metrics.auc([1, 1, 0], [0.1, 0.2, 0.3]) == 0.0
    assert metrics.auc([0, 1, 0], [0.5, 0.5, 0.5]) == 0.5


def test_auc_of_float32_and_column_shapes() -> None:
    labels = np.array([[0.0], [1.0]], np.float32)
    assert metrics.auc(labels, np.array([0.2, 0.1], np.float32)) == 0.0


def test_auc_of_many_records_does_not_overflow() -> None:
    labels = np.arange(400_000) % 2
    assert metrics.auc(labels, np.arange(400_000)) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "scores"), [([1, 1], [0.1, 0.2]), ([0], [0.1]), ([], []), ([0, 1], [0.1, math.nan])]
)
def test_auc_that_is_not_defined_is_nan(labels: list[int], scores: list[float]) -> None:
    assert math.isnan(metrics.auc(labels, scores))


def test_accuracy() -> None:
    assert metrics.accuracy([0, 1, 1, 0], [0.2, 0.9, 0.4, 0.5]) == 0.75
    assert metrics.accuracy([0, 1], [0.2, 0.3], threshold=0.25) == 1.0
    assert math.isnan(metrics.accuracy([], []))


@pytest.mark.parametrize("metric", [metrics.auc, metrics.accuracy])
def test_wrong_input_is_refused(metric) -> None:
    with pytest.raises(ValueError, match="2 labels but 1 predictions"):
        metric([0, 1], [0.5])
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        metric([0, 2], [0.5, 0.5])


def test_auc_needs_little_memory_beside_its_input() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, (400_000, 1))
    scores = generator.random((400_000, 1), np.float32)
    tracemalloc.start()
    try:
        metrics.auc(labels, scores)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / len(labels) < 16  # 4 of the predictions, a few of masks; and chunks
