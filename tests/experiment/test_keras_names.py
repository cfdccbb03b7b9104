"""What a task's methods return: the forms that a Keras user writes, and what is refused."""

import dataclasses
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models import Subclassed
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.model.stateless_model import StatelessModel

ID, X = Feature("id", "int64", (), 10), Feature("x", "float32", (3,))
LABELS = (Feature("label", "float32"), Feature("other", "float32"))


@dataclasses.dataclass(frozen=True)
class Given(Task):
    """A task that returns what it is given."""

    inputs: Any = (ID, X)
    learnt: Any = LABELS[0]
    of_loss: Any = "mse"
    of_optimizer: Any = "adam"

    def features(self):
        return self.inputs

    def label(self):
        return self.learnt

    def build_model(self):
        return Subclassed()

    def loss(self):
        return self.of_loss

    def optimizer(self):
        return self.of_optimizer


@pytest.mark.parametrize("given", ["mse", "MeanSquaredError", keras.losses.mean_squared_error])
def test_names_and_functions_are_the_losses_of_compile(given):
    labels, outputs = tf.constant([1.0, 2.0, 4.0]), tf.constant([[0.5], [2.0], [1.0]])
    weights = tf.constant([1.0, 0.0, 2.0])
    task, expected = Given(of_loss=given), keras.losses.MeanSquaredError()
    for more in ({}, {"sample_weight": weights}):
        ours = task.compute_loss({}, labels, outputs, **more)
        assert float(ours) == float(expected(labels, outputs, **more))
    assert list(task.metrics()) == ["mse", "mae"]
    assert StatelessModel(task, seed=0).prediction_names == ("predictions",)


@pytest.mark.parametrize("given", ["mse", ["mse", "mae"], {"label": "mse", "other": "mae"}])
def test_several_labels_have_losses_by_name_in_order_or_one_for_all(given):
    truth = {"label": tf.constant([1.0, 3.0]), "other": tf.constant([2.0, 2.0])}
    outputs = [tf.constant([[0.0], [0.0]]), tf.constant([[0.0], [1.0]])]
    loss = Given(learnt=list(LABELS), of_loss=given).compute_loss({}, truth, outputs)
    assert float(loss) == pytest.approx(5.0 + (2.5 if given == "mse" else 1.5))


@pytest.mark.parametrize("given", ["adam", "Adam", {"class_name": "Adam", "config": {}}])
def test_names_are_optimizers(given):
    assert type(Given(of_optimizer=given).optimizer()) is keras.optimizers.Adam


@pytest.mark.parametrize("given", [[ID, X], {"id": ID, "x": X}, {"id": ID, "x": X}.values()])
def test_features_in_any_form_are_a_tuple(given):
    assert Given(inputs=given).features() == (ID, X)
    assert Given(inputs=X).features() == (X,)


@pytest.mark.parametrize(
    ("given", "ask", "message"),
    [
        (
            {"inputs": "x"},
            "features",
            r"line \d+: Given.features\(\) returns 'x' must be a tuple, ",
        ),
        ({"inputs": {"y": X}}, "features", "stands under 'y', but its name is 'x'"),
        ({"inputs": [X, "x"]}, "features", "number 1 is 'x'; write tfps.Feature"),
        ({"learnt": "label"}, "label", "must be a tfps.Feature or a tuple, each a tfps.Feature"),
        ({"of_loss": "mses"}, "loss", "returns 'mses': Could not interpret loss identifier: mses"),
        ({"of_loss": None}, "loss", "returns None must be a keras.losses.Loss, the name of one or"),
        ({"of_optimizer": "adams"}, "optimizer", "'adams' must be a keras.optimizers.Optimizer"),
        ({"of_optimizer": keras.optimizers.Adam}, "optimizer", "must be a keras.optimizers.Optim"),
    ],
)
def test_what_a_method_may_not_return_is_refused_with_its_place(given, ask, message):
    with pytest.raises(UserError, match=message) as error:
        getattr(Given(**given), ask)()
    assert str(error.value).startswith(f"{__file__} line ")


def test_a_loss_with_weights_of_its_own_gets_them():
    def weighted(labels, outputs, sample_weight=None):
        return tf.reduce_sum(labels * (1.0 if sample_weight is None else sample_weight))

    task = Given(of_loss=weighted)
    labels = tf.constant([1.0, 2.0])
    assert float(task.compute_loss({}, labels, labels)) == 3.0
    assert float(task.compute_loss({}, labels, labels, np.array([0.0, 1.0], "f4"))) == 2.0


@dataclasses.dataclass(frozen=True)
class Raising(Given):
    """A task in whose methods the code of a user fails."""

    def features(self):
        return (Feature("id", "int64", (), 10 // len(self.inputs)),)

    def build_model(self):
        return keras.Sequential([keras.layers.Dense(-1)])

    def loss(self, labels):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return {"adam": "Adam"}["sgd"]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("features", "ZeroDivisionError: integer division or modulo by zero"),
        ("build_model", "ValueError: .*units.*-1"),
        ("optimizer", "KeyError: 'sgd'"),
        ("loss", r"TypeError: Raising\.loss\(\) missing 1 required positional argument: 'labels'"),
    ],
)
def test_what_a_method_raises_is_one_line_with_its_place(method, message):
    place = rf"{re.escape(__file__)} line \d+: Raising.{method}\(\) raised "
    with pytest.raises(UserError, match=f"^{place}{message}") as error:
        getattr(Raising(inputs=()), method)()
    assert "\n" not in str(error.value)
