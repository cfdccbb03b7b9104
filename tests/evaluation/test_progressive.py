"""Counts of predictions, and the metrics that they give, beside scikit-learn's and Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import log_loss, roc_auc_score

import tfps
from tfps.data.feature import Feature
from tfps.evaluation.progressive import WIDTH, Judged, judged_labels
from tfps.worker.judge import Judge

SINGLE = "predictions"


def judged(labels, scores, names=("clicked",), size=100):
    """Labels and scores, `[records]` by name, counted in batches."""
    judge = Judge({name: name for name in names})

    @tf.function(autograph=False)
    def count(scores, labels):
        """As a closure does, of two batches."""
        counts = judge.begin()
        for some in (slice(None, size // 2), slice(size // 2, None)):
            parts = [{n: x[n][some] for n in names} for x in (scores, labels)]
            counts.add(judge.scores(parts[0]), parts[1])
        return counts.all()

    found = Judged.nothing(names)
    for first in range(0, len(scores[names[0]]), size):
        some = slice(first, first + size)
        parts = [{n: tf.constant(x[n][some]) for n in names} for x in (scores, labels)]
        found = found.plus(count(*parts).numpy())
    return found


def drawn(records, seed=0, rate=0.1):
    rng = np.random.default_rng(seed)
    logit = rng.normal(np.log(rate / (1 - rate)), 1.5, records)
    scores = 1 / (1 + np.exp(-logit))
    return (rng.random(records) < scores).astype("f4"), scores.astype("f4")


@pytest.mark.parametrize("rate", [0.5, 0.02])
def test_metrics_are_those_of_all_records(rate):
    labels, scores = drawn(20_000, rate=rate)
    found = judged({"clicked": labels}, {"clicked": scores}).metrics()
    assert found["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-4)
    assert found["log_loss"] == pytest.approx(log_loss(labels, scores), rel=1e-5)
    assert found["calibration"] == pytest.approx(scores.mean() / labels.mean(), rel=1e-5)


def test_ties_and_the_ends_count_as_in_the_exact_area():
    rng = np.random.default_rng(1)
    scores = rng.choice(np.array([0, 0.1, 0.5, 0.9, 1], "f4"), 3000)
    labels = (rng.random(3000) < 0.3 + 0.4 * scores).astype("f4")
    found = judged({"clicked": labels}, {"clicked": scores}).metrics()
    assert found["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-9)
    keras_loss = keras.losses.BinaryCrossentropy()(labels[:, None], scores[:, None])
    assert found["log_loss"] == pytest.approx(float(keras_loss), rel=1e-5)


def test_each_of_several_labels_has_its_own():
    names = ("clicked", "bought")
    labels, scores = {}, {}
    for seed, name in enumerate(names):
        labels[name], scores[name] = drawn(2000, seed, 0.3)
    found = judged(labels, scores, names).metrics()
    for name in names:
        exact = roc_auc_score(labels[name], scores[name])
        assert found[f"{name}_auc"] == pytest.approx(exact, abs=2e-4)
    assert len(found) == 6


@pytest.mark.parametrize(
    ("label", "score"), [(2.0, 0.5), (0.5, 0.5), (1.0, 1.5), (1.0, -0.1), (1.0, np.nan)]
)
def test_a_label_or_prediction_that_is_no_yes_or_no_gives_none(label, score):
    labels, scores = drawn(300)
    labels[7], scores[7] = label, score
    assert judged({"clicked": labels}, {"clicked": scores}).metrics() == {}


def test_of_one_class_there_is_no_area():
    found = judged({"clicked": np.ones(10, "f4")}, {"clicked": np.full(10, 0.5, "f4")})
    assert list(found.metrics()) == ["log_loss"]
    assert found.since(found).metrics() == {}


class Labelled(tfps.Task):
    def __init__(self, *labels):
        self._labels = labels

    def features(self):
        return (Feature("x", "float32"),)

    def label(self):
        return self._labels[0] if len(self._labels) == 1 else self._labels

    def build_model(self):
        raise AssertionError

    loss = optimizer = build_model


def test_labels_with_a_prediction_of_one_value_are_judged():
    clicked, classes = Feature("clicked", "int64"), Feature("kind", "int64", vocabulary=5)
    bought = Feature("bought", "float32", (1,))
    assert judged_labels(Labelled(clicked), {SINGLE: ()}) == {"clicked": SINGLE}
    assert judged_labels(Labelled(clicked), {SINGLE: (1,)}) == {"clicked": SINGLE}
    assert judged_labels(Labelled(classes), {SINGLE: (5,)}) == {}
    shapes = {"clicked": (1,), "bought": (), "kind": (5,)}
    several = judged_labels(Labelled(clicked, bought, classes), shapes)
    assert several == {"clicked": "clicked", "bought": "bought"}
    assert judged_labels(Labelled(clicked, bought), {SINGLE: ()}) == {}
    assert Judge(several).begin().all().shape == (2 * WIDTH,)
