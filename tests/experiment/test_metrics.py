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


def test_the_largest_value_names_the_class() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [0.0, 0.1, 0.9]], "f4")
    assert metrics.class_accuracy([1, 0, 1], scores) == pytest.approx(2 / 3)
    assert metrics.class_accuracy([[1], [0], [2]], scores) == 1.0
    assert metrics.class_accuracy(np.eye(3)[[1, 1, 2]], scores) == pytest.approx(2 / 3)
    assert math.isnan(metrics.class_accuracy([0], [[math.nan, 1.0]]))


def test_the_classes_of_a_sequence_count_one_by_one() -> None:
    scores = np.zeros([2, 4, 3], "f4")
    scores[..., 1] = 1.0
    labels = np.array([[1, 1, 0, 1], [2, 1, 1, 1]])
    assert metrics.class_accuracy(labels, scores) == 6 / 8


def test_of_two_classes_one_probability_is_enough() -> None:
    assert metrics.class_accuracy([1, 0, 1], [0.9, 0.2, 0.4]) == pytest.approx(2 / 3)
    assert metrics.class_accuracy([1, 0, 1], [[0.9], [0.2], [0.4]]) == pytest.approx(2 / 3)


def test_classes_without_predictions_for_each_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the labels are \[3\], the predictions \[2, 2\]"):
        metrics.class_accuracy([1, 0, 1], [[0.9, 0.1], [0.2, 0.8]])


def test_how_far_numbers_are_off() -> None:
    labels, predictions = np.array([[1.0], [2.0], [-3.0]]), np.array([1.5, 2.0, -1.0], "f4")
    assert metrics.mean_squared_error(labels, predictions) == pytest.approx(4.25 / 3)
    assert metrics.mean_absolute_error(labels, predictions) == pytest.approx(2.5 / 3)
    many = np.arange(200_000, dtype="f4")
    assert metrics.mean_squared_error(many, many + 2) == pytest.approx(4.0, rel=1e-6)
    assert math.isnan(metrics.mean_squared_error([], []))
    with pytest.raises(ValueError, match=r"the labels are \[3, 1\], the predictions \[3, 2\]"):
        metrics.mean_absolute_error(labels, np.zeros([3, 2]))
