import dataclasses
import logging
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from configs.smoke import Smoke
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.evaluation.metrics import check_metrics, metric_names, task_metrics, try_metrics

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


def test_an_evaluation_tells_how_many_groups_are_left_out(caplog):
    caplog.set_level(logging.INFO)
    task, labels = Ranked(measures=HITS), {"label": np.array([1, 0, 0, 0]), "token": GROUPS}
    try_metrics(task, labels, {"predictions": ()})
    assert not caplog.text
    assert task_metrics(task, labels, PREDICTIONS) == {"hits": 0.0, "all": 4.0}
    assert "hits leaves out 1 of 2 groups, without a positive" in caplog.text


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
