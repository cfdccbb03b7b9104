"""Keras's metrics over more records than float32 can count."""

import keras
import numpy as np
import pytest

from tfps.model.compiled_task import RunningKerasMetric

DRAW = np.random.default_rng(0)
LABELS = DRAW.integers(0, 2, 100_000)
CHANCES = (DRAW.random(100_000) * 0.8 + 0.2 * LABELS).astype("f4")


def running(metric, parts=(100_000,)):
    found, first = RunningKerasMetric(metric), 0
    for records in parts:
        found.add(LABELS[first : first + records], CHANCES[first : first + records])
        first += records
    return found.result()


@pytest.mark.parametrize(
    "make",
    [
        keras.metrics.BinaryAccuracy,
        keras.metrics.BinaryCrossentropy,
        keras.metrics.RootMeanSquaredError,
        keras.metrics.AUC,
        keras.metrics.Precision,
        keras.metrics.FalseNegatives,
        lambda: keras.metrics.RecallAtPrecision(0.6),
        lambda: keras.metrics.R2Score(),  # whose state is not added up here
    ],
)
def test_it_is_what_keras_measures_of_all_at_once(make):
    whole = make()
    whole.update_state(LABELS[:, None], CHANCES[:, None])
    found = RunningKerasMetric(make())
    for first, end in ((0, 1), (1, 70_000), (70_000, 100_000)):
        found.add(LABELS[first:end, None], CHANCES[first:end, None])
    assert found.result() == pytest.approx(float(whole.result()), rel=1e-5)


def test_what_it_has_seen_before_is_forgotten():
    metric = keras.metrics.BinaryAccuracy()
    expected = running(metric)
    metric.update_state(LABELS, 1 - LABELS)
    assert running(metric) == expected


def test_counts_go_on_beyond_what_float32_counts():
    records = 1 << 16
    ones, zeros = np.ones(records, "f4"), np.zeros(records, "f4")
    metric = keras.metrics.TruePositives()
    found = RunningKerasMetric(metric)
    found.add(ones, ones)
    found._sums[0] += (1 << 24) - records  # as after 2^24 records
    found.add(np.concatenate([ones, [1.0]]), np.concatenate([zeros, [1.0]]))
    found.add(np.array([1.0]), np.array([1.0]))
    assert found.result() == (1 << 24) + 2


def test_a_metric_of_the_users_own_keeps_its_state_as_it_does():
    class Largest(keras.metrics.Mean):
        """The mean of no records at all, but their largest."""

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.total.assign(keras.ops.maximum(self.total, keras.ops.max(y_pred)))
            self.count.assign(1.0)

    assert running(Largest(), (10, 99_990)) == CHANCES.max()
