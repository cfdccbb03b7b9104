"""Metrics that a model's own code updates."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import Trainer, dataset
from tfps import write_dataset
from tfps.data.feature import Feature
from tfps.data.manifest import read as manifest_of
from tfps.data.record_source import pieces_of
from tfps.experiment.task import Task
from tfps.model.compiled_task import task_of
from tfps.model.stateless_model import StatelessModel


class Watched(keras.layers.Layer):
    """Passes rows on, and measures them."""

    def __init__(self, kind=keras.metrics.Mean, always=True):
        super().__init__(name="watched")
        self.norm, self.always = kind(name="row_norm"), always

    def call(self, rows, training=False):
        if self.always or training:
            self.norm.update_state(keras.ops.sqrt(keras.ops.sum(rows * rows, -1)))
        return rows


class Largest(keras.metrics.Metric):
    """What no sum is."""

    def __init__(self, name):
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, values):
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(values)))

    def result(self):
        return self.largest


class Tracking(keras.Model):
    """Tracks a part of its loss, as keras.io's examples do, and has metrics computed."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = keras.ops.mean(keras.ops.square(y_pred[:, 0] - keras.ops.cast(y, "float32")))
        self.tracker.update_state(loss)
        return loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {"own": 1.0}


FEATURES = (
    Feature("numbers", "float32", (4,)),
    Feature("token", "int64", vocabulary=20),
)


def model_of(watched, kind=keras.Model):
    numbers = keras.Input((4,), name="numbers")
    token = keras.Input((), name="token", dtype="int64")
    rows = keras.layers.Embedding(20, 3)(token)
    rows = watched(rows) if watched else rows
    out = keras.layers.Dense(1)(keras.layers.Concatenate()([rows, numbers]))
    model = kind({"numbers": numbers, "token": token}, out)
    if kind is Tracking:
        model.tracker = keras.metrics.Mean(name="squared")
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def task(make):
    return task_of(make, Feature("label", "int64", vocabulary=2), FEATURES)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=150, shards=2)


def evaluated(trainer):
    """What the model's own metrics are on all records, and the tokens and labels of these."""
    pieces = pieces_of(trainer.manifest, trainer.experiment.train.batch_size)
    states = [each.measured for each in trainer.coordinator.evaluate(pieces)]
    assert len(states) > 1
    records = [
        tf.train.Example.FromString(record).features.feature
        for source, _ in trainer.shards()
        for record in tf.data.TFRecordDataset(source.path).as_numpy_iterator()
    ]
    tokens = np.array([each["token"].int64_list.value[0] for each in records])
    return trainer.model.layer_metrics.result(states), tokens


def test_a_mean_in_a_layer_is_that_of_all_records_of_an_evaluation(manifest, tmp_path):
    trainer = Trainer(manifest, task(lambda: model_of(Watched())))
    found, tokens = evaluated(trainer)
    norms = np.linalg.norm(trainer.store.read_table(0), axis=-1)
    assert found == {"row_norm": pytest.approx(norms[tokens].mean(), rel=1e-5)}
    trainer.export(tmp_path / "export")
    names = [name for name, _ in tf.train.list_variables(f"{tmp_path}/export/variables/variables")]
    assert len([x for x in names if "model" in x]) == 3  # the table, kernel and bias: a server
    # measures nothing


def test_a_metric_that_compute_loss_updates_is_measured_and_compute_metrics_is_not():
    model = StatelessModel(task(lambda: model_of(None, Tracking)), seed=0)
    assert model.layer_metrics.names == ("squared",)
    [sentence] = model.layer_metrics.unmeasured
    assert sentence.startswith("compute_metrics() of Tracking is never called")


@pytest.mark.parametrize(
    ("watched", "why"),
    [
        (lambda: Watched(Largest), "a Largest of several workers is not a sum"),
        (lambda: Watched(always=False), "it is updated in training alone"),
    ],
)
def test_what_cannot_be_measured_is_told(watched, why):
    metrics = StatelessModel(task(lambda: model_of(watched())), seed=0).layer_metrics
    assert metrics.names == ()
    [sentence] = metrics.unmeasured
    assert sentence.startswith(f"metric 'row_norm' of the model is not measured: {why}")


def test_the_metrics_of_compile_and_of_its_losses_are_not_among_them():
    metrics = StatelessModel(task(lambda: model_of(None)), seed=0).layer_metrics
    assert metrics.names == ()
    assert metrics.unmeasured == []


TARGETS = Feature("sold", "float32"), Feature("days", "float32")
LOSSES = {"sold": keras.losses.BinaryCrossentropy(), "days": keras.losses.MeanAbsoluteError()}


def two_outputs(kind=dict, compiled=True):
    numbers = keras.Input((4,), name="numbers")
    outputs = kind(
        {
            "sold": keras.layers.Dense(1, "sigmoid", name="sold")(numbers),
            "days": keras.layers.Dense(1, name="days")(numbers),
        }.items()
    )
    outputs = outputs if kind is dict else [output for _, output in outputs]
    model = keras.Model(numbers, outputs)
    if compiled:
        losses = LOSSES if kind is dict else list(LOSSES.values())
        model.compile(
            "sgd", losses, loss_weights=dict.fromkeys(LOSSES, 0.5) if kind is dict else None
        )
    return model


class TwoLosses(Task):
    """Two outputs, whose losses the task has."""

    def features(self):
        return FEATURES[:1]

    def label(self):
        return TARGETS

    def build_model(self):
        return two_outputs(compiled=False)

    def loss(self):
        return LOSSES

    def optimizer(self):
        return keras.optimizers.SGD()


@pytest.mark.quick("task")
@pytest.mark.parametrize(
    "make",
    [
        lambda: task_of(two_outputs, TARGETS, FEATURES[:1]),
        lambda: task_of(lambda: two_outputs(list), TARGETS, FEATURES[:1]),
        TwoLosses,
    ],
    ids=["dict", "list", "task"],
)
def test_the_losses_of_outputs_are_those_that_evaluate_gives(make, tmp_path):
    drawn = np.random.default_rng(3)
    x = {"numbers": drawn.normal(size=(150, 4)).astype("f4")}
    y = {
        "sold": drawn.integers(0, 2, 150).astype("f4"),
        "days": drawn.normal(size=150).astype("f4"),
    }
    write_dataset(str(tmp_path), x, y, shards=2)
    trainer = Trainer(manifest_of(str(tmp_path)), make())
    pieces = pieces_of(trainer.manifest, trainer.experiment.train.batch_size)
    results = [each.measured for each in trainer.coordinator.evaluate(pieces)]
    found = trainer.model.layer_metrics.result(results)
    keras_model = two_outputs()
    values = zip(trainer.model.dense, trainer.store.read_dense(), strict=True)
    by_path = {variable.path: value for variable, value in values}
    for variable in keras_model.trainable_variables:
        variable.assign(by_path[variable.path])
    theirs = keras_model.evaluate(x["numbers"], y, batch_size=150, verbose=0, return_dict=True)
    assert found == {
        name: pytest.approx(theirs[name], rel=1e-5) for name in ("sold_loss", "days_loss")
    }
    assert trainer.model.layer_metrics.names == ("sold_loss", "days_loss")
