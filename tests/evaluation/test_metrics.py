import dataclasses
import functools
import itertools
import math
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from configs.smoke import Smoke
from tests.measured import results, task_metrics
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.evaluation.metrics import RunningMetrics, check_metrics, metric_names, try_metrics
from tfps.experiment import metrics

LABELS = {"label": np.array([0, 1, 1, 0])}
PREDICTIONS = {"predictions": np.array([0.1, 0.9, 0.4, 0.2], np.float32)}


@dataclasses.dataclass(frozen=True)
class Measured(Smoke):
    several: bool = False
    measures: Any = None

    def label(self):
        label = Feature("label", "int64", vocabulary=2)
        return (label, Feature("other", "float32")) if self.several else label

    def metrics(self):
        return self.measures if self.measures else super().metrics()


def test_a_single_label_and_prediction_are_arrays() -> None:
    found = task_metrics(Measured(), LABELS, PREDICTIONS)
    assert found == {"auc": 1.0, "accuracy": 0.75}


def test_a_metric_of_keras_is_a_metric() -> None:
    task = Measured(measures={"mine": keras.metrics.BinaryAccuracy(threshold=0.3)})
    assert task_metrics(task, LABELS, PREDICTIONS) == {"mine": 1.0}


def test_several_labels_are_measured_together_or_each() -> None:
    labels = {**LABELS, "other": np.ones(4, np.float32)}
    predictions = {"label": PREDICTIONS["predictions"], "other": np.zeros(4, np.float32)}
    measures = {
        "sum": lambda y, p: sum(y["label"]) + sum(p["other"]),
        "other": {"error": lambda y, p: np.mean(y - p)},
    }
    found = task_metrics(Measured(several=True, measures=measures), labels, predictions)
    assert found == {"sum": 2.0, "other_error": 1.0}
    several = Measured(several=True, measures=measures)
    assert metric_names(several) == ["loss", *found]
    assert set(Measured(several=True).metrics()) == {"label", "other"}


def test_a_metric_that_fails_is_named() -> None:
    task = Measured(measures={"mine": lambda y, p: y["label"]})
    with pytest.raises(UserError, match="metric 'mine' of Measured fails"):
        task_metrics(task, LABELS, PREDICTIONS)


def test_defaults_that_may_be_of_any_of_several_predictions_are_refused_by_name() -> None:
    shapes = {"query": [4], "score": [1]}
    with pytest.raises(UserError, match=r"Smoke .* predictions query, score belongs to the label"):
        try_metrics(Smoke(), LABELS, shapes)
    try_metrics(Measured(measures={"mine": lambda y, p: p["score"].mean()}), LABELS, shapes)


def test_metrics_without_a_label_or_a_prediction_are_refused() -> None:
    check_metrics(Measured(), ["predictions"])
    check_metrics(Measured(several=True), ["label", "other"])
    with pytest.raises(UserError, match="'label_auc' measures the label 'label', but predictions"):
        check_metrics(Measured(several=True), ["predictions"])
    with pytest.raises(UserError, match="stands under 'y', which is no label"):
        check_metrics(Measured(measures={"y": {"m": max}}), ["predictions"])


TOKEN = Feature("token", "int64", vocabulary=20)


@dataclasses.dataclass(frozen=True)
class Ranked(Measured):
    """Ranked within the groups of an id that is a feature, or of one that is none."""

    of: Any = TOKEN

    def group(self):
        return self.of


HITS = {"hits": tfps.HitRate(1), "all": lambda y, p: len(y)}
GROUPS = np.array([7, 7, 9, 9])


def test_a_grouped_metric_is_given_the_groups():
    labels = {**LABELS, "token": GROUPS}
    predictions = {"predictions": np.array([0.1, 0.9, 0.4, 0.6], "f4")}
    task = Ranked(measures=HITS)
    assert task_metrics(task, labels, predictions) == {"hits": 0.5, "all": 4.0}
    try_metrics(task, labels, {"predictions": ()})


def test_an_evaluation_tells_how_many_groups_are_left_out():
    task, labels = Ranked(measures=HITS), {"label": np.array([1, 0, 0, 0]), "token": GROUPS}
    found = results(task, labels, PREDICTIONS)
    assert {name: each.value for name, each in found.items()} == {"hits": 0.0, "all": 4.0}
    assert found["hits"].note == "leaves out 1 of 2 groups, without a positive"
    assert found["all"].note == ""


def test_records_may_come_in_parts_of_any_size():
    """Of every kind of metric: known ones, sums, Keras's, of groups, and a function's of all."""
    draw = np.random.default_rng(0)
    labels = {"label": draw.integers(0, 2, 1000), "token": draw.integers(0, 20, 1000)}
    predictions = {"predictions": draw.random(1000, np.float32)}
    measures = {
        "auc": metrics.auc,
        "accuracy": metrics.accuracy,
        "strict": functools.partial(metrics.accuracy, threshold=0.9),
        "mse": metrics.mean_squared_error,
        "log_loss": tfps.LogLoss(),
        "entropy": tfps.NormalizedEntropy(),
        "calibration": tfps.Calibration(),
        "keras": keras.metrics.AUC(num_thresholds=50),
        "hits": tfps.HitRate(3),
        "own": lambda y, p: np.median(p[y == 1]),
    }
    expected = {
        name: metric(labels["label"], predictions["predictions"], labels["token"])
        if name == "hits"
        else metric(labels["label"], predictions["predictions"])
        for name, metric in measures.items()
    }
    measures["keras"].reset_state()
    running = RunningMetrics(Ranked(measures=measures))
    for first, end in itertools.pairwise([0, 1, 30, 30, 999, 1000]):
        running.add(
            *({name: x[first:end] for name, x in some.items()} for some in (labels, predictions))
        )
    found = {name: each.value for name, each in running.result().items()}
    assert found == pytest.approx({k: float(x) for k, x in expected.items()}, rel=1e-6)


def test_metrics_of_sums_are_what_their_papers_say():
    labels, predictions = np.array([1, 0, 0, 0]), np.array([0.5, 0.5, 0.25, 0.25], "f4")
    loss = -(2 * math.log(0.5) + 2 * math.log(0.75)) / 4
    assert tfps.LogLoss()(labels, predictions) == pytest.approx(loss)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert tfps.NormalizedEntropy()(labels, predictions) == pytest.approx(loss / entropy)
    assert tfps.Calibration()(labels, predictions) == pytest.approx(1.5)
    for metric in (tfps.NormalizedEntropy(), tfps.Calibration()):
        assert math.isnan(metric(np.zeros(4), predictions))
    with pytest.raises(ValueError, match="a prediction is 2, which is no chance"):
        tfps.LogLoss()(labels, 4 * predictions)


def test_a_grouped_metric_of_several_labels_stands_under_one():
    labels = {**LABELS, "other": np.ones(4, "f4"), "token": GROUPS}
    predictions = {"label": PREDICTIONS["predictions"], "other": np.zeros(4, "f4")}
    task = Ranked(several=True, measures={"label": {"hits": tfps.HitRate(1)}})
    assert task_metrics(task, labels, predictions) == {"label_hits": 1.0}
    with pytest.raises(UserError, match=r"'hits' of Ranked fails: .* put it under the label's"):
        task_metrics(Ranked(several=True, measures=HITS), labels, predictions)


def test_a_group_that_is_no_feature_is_held_by_the_records():
    session = Feature("session", "string")
    assert Ranked().labels() == (Ranked().label(),)
    assert Ranked(of=session).labels() == (Ranked().label(), session)
    for of in (TOKEN, session):
        assert Ranked(of=of).measured() == (Ranked().label(), of)
    assert Ranked(of=None).measured() == Ranked(of=None).labels()


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (None, "'hits' ranks the records of a group, but group\\(\\) names none"),
        (Feature("token", "int64"), "'token' is not the 'token' that records hold"),
        (Feature("numbers", "float32", (4,)), "'numbers' .* is no id"),
        (Feature("seen", "int64", (None,)), "'seen' .* is no id"),
    ],
)
def test_a_group_that_ranks_nothing_is_refused(of, told):
    with pytest.raises(UserError, match=told):
        check_metrics(Ranked(measures=HITS, of=of), ["predictions"])


@dataclasses.dataclass(frozen=True)
class Fitted(Smoke):
    given: Any = None
    loss_given: Any = None

    def label(self):
        return self.given

    def loss(self):
        return self.loss_given


YES, NUMBER = Feature("label", "int64", vocabulary=2), Feature("label", "float32")


@pytest.mark.parametrize(
    ("label", "loss", "expected"),
    [
        (YES, keras.losses.BinaryCrossentropy(), {"auc", "accuracy"}),
        (NUMBER, keras.losses.BinaryCrossentropy(), {"auc", "accuracy"}),
        (NUMBER, keras.losses.MeanSquaredError(), {"mse", "mae"}),
        (NUMBER, keras.losses.Huber(), {"mse", "mae"}),
        (Feature("label", "int64"), keras.losses.SparseCategoricalCrossentropy(), {"accuracy"}),
        (YES, lambda labels, outputs: 0.0, {"auc", "accuracy"}),
        (NUMBER, lambda labels, outputs: 0.0, {"mse", "mae"}),
        (Feature("label", "int64"), lambda labels, outputs: 0.0, set()),
        ((YES, Feature("price", "float32")), {"price": keras.losses.LogCosh()}, {"label", "price"}),
    ],
)
def test_metrics_fit_the_loss_and_the_label_where_a_task_names_none(label, loss, expected):
    assert set(Fitted(given=label, loss_given=loss).metrics()) == expected


def test_a_task_that_computes_its_loss_itself_has_metrics():
    class Own(Smoke):
        loss = tfps.Task.loss

        def compute_loss(self, features, labels, outputs):
            return 0.0

    assert set(Own().metrics()) == {"auc", "accuracy"}


def test_metrics_are_tried_with_labels_before_there_are_predictions():
    labels = {"label": np.array([0.5, 2.0, 7.0], "f4")}
    try_metrics(
        Fitted(given=NUMBER, loss_given=keras.losses.MeanSquaredError()),
        labels,
        {"predictions": (1,)},
    )
    task = Fitted(given=NUMBER, loss_given=keras.losses.BinaryCrossentropy())
    with pytest.raises(
        UserError, match=r"'auc' of Fitted fails: a label is neither 0 nor 1 .*3 ev"
    ):
        try_metrics(task, labels, {"predictions": (1,)})
