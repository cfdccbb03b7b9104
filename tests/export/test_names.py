"""Features and labels with any names that records can have."""

import dataclasses
import json
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.export.graph_alone import graph_alone
from tests.training_fixtures import Trainer
from tfps.data import examples
from tfps.data.feature import Feature
from tfps.experiment.task import Task
from tfps.export.exported_files import SCHEMA_FILE
from tfps.export.keras_file import export_keras
from tfps.export.loaded_model import ExportedModel
from tfps.export.parameters import StoreParameters
from tfps.export.saved_model import try_export
from tfps.export.versions import read_warm_up
from tfps.model.inputs import python_arguments
from trainer.chief.exports import predict_sample
from trainer.serving.question import read_question

NUMBERS = (
    *("hours-per-week", "hours_per_week", "hours.per.week", "User ID", "user:id", "user/id"),
    *("USER_ID", "CTR%", "用户", "Größe", "self", "class", "None", "1st", "_x", "__index__"),
    *("inputs", "mask", "'\""),
)
FEATURES = (
    *(Feature(name, "float32") for name in NUMBERS),
    Feature("item id", "int64", vocabulary=5),
    Feature("tags, all", "int64", (None,), vocabulary=5),
)
LABELS = (Feature("click-rate", "float32"), Feature("buy rate", "float32"))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.heads = keras.layers.Embedding(5, 2), [keras.layers.Dense(1) for _ in "ab"]

    def call(self, inputs):
        tags = tf.reduce_sum(self.table(inputs["tags, all"]), 1)
        numbers = keras.ops.stack([inputs[name] for name in NUMBERS], -1)
        found = keras.ops.concatenate([numbers, self.table(inputs["item id"]), tags], -1)
        return {label.name: head(found) for label, head in zip(LABELS, self.heads, strict=True)}


# Keras itself takes no input whose name has a slash.
OF_FUNCTIONAL = [each for each in FEATURES if not each.is_ragged and "/" not in each.name]


def functional():
    inputs = {f.name: keras.Input(f.shape, name=f.name, dtype=f.dtype) for f in OF_FUNCTIONAL}
    numbers = keras.ops.stack([inputs[name] for name in NUMBERS if name in inputs], -1)
    rows = keras.layers.Embedding(5, 2)(inputs["item id"])
    found = keras.layers.Concatenate()([numbers, rows])
    return keras.Model(inputs, {label.name: keras.layers.Dense(1)(found) for label in LABELS})


@dataclasses.dataclass(frozen=True)
class Named(Task):
    """A task of one of the models."""

    make: Callable[[], keras.Model] = Subclassed

    def features(self):
        return FEATURES if self.make is Subclassed else tuple(OF_FUNCTIONAL)

    def label(self):
        return LABELS

    def build_model(self):
        return self.make()

    def loss(self):
        return {label.name: keras.losses.MeanSquaredError() for label in LABELS}

    def optimizer(self):
        return keras.optimizers.SGD()


@pytest.fixture(scope="module", params=[Subclassed, functional])
def trainer(request):
    return Trainer(None, Named(request.param), parts=1)


@pytest.fixture(scope="module")
def sample(trainer):
    return predict_sample(trainer.task, StoreParameters(trainer.model, trainer.store), None)


@pytest.fixture(scope="module")
def exported(trainer, tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "export"
    trainer.export(path)
    return path


def records(trainer, sample):
    features = trainer.task.features()
    flat = {name: np.atleast_1d(value[0]) for name, value in sample.features.items()}
    scalars = {f.name: flat[f.name] if f.is_ragged else flat[f.name].item() for f in features}
    return [examples.encode(scalars, features)]


def test_a_model_of_such_features_predicts_when_it_is_loaded(trainer, exported, sample):
    model = ExportedModel.load(str(exported))
    assert [f.name for f in model.features] == [f.name for f in trainer.task.features()]
    for found in (model.predict(sample.features), sample.refuse_different(model.predict)):
        assert set(found) == {"click-rate", "buy rate"}
    by_example = model.predict_examples(records(trainer, sample))
    for name, wanted in sample.predictions.items():
        np.testing.assert_allclose(by_example[name], wanted[:1], atol=1e-6)


def test_servers_of_tensorflow_take_the_features_own_names(trainer, exported):
    names = {f.name for f in trainer.task.features()}
    lengths = {"tags, all_row_lengths"} & {f"{name}_row_lengths" for name in names}
    with graph_alone(exported) as served:
        assert set(served.takes["serving_default"]) == names | lengths
    for request in read_warm_up(str(exported)):
        assert set(request.inputs) in (names | lengths, {"examples"})


def test_a_request_names_them_too(trainer, exported, sample):
    model = ExportedModel.load(str(exported))
    row = {name: np.asarray(value[0]).tolist() for name, value in sample.features.items()}
    answer = read_question(json.dumps({"instances": [row]}).encode(), model, 10).ask(model)
    np.testing.assert_allclose(answer["buy rate"], sample.predictions["buy rate"][:1], atol=1e-6)


def test_the_schema_says_what_python_calls_them(exported):
    arguments = json.loads((exported / SCHEMA_FILE).read_text())["arguments"]
    assert arguments["User ID"] == "User_ID_2"
    assert arguments["hours-per-week"] == "hours_per_week_2"
    taken = tf.saved_model.load(exported).signatures["serving_default"]
    names = set(taken.structured_input_signature[1])
    assert set(arguments.values()) < names
    assert not names & arguments.keys()
    assert {"hours_per_week", "inputs", "mask"} < names - set(arguments.values())


def test_a_file_of_keras_has_them(trainer, sample, tmp_path):
    parameters = StoreParameters(trainer.model, trainer.store)
    path = str(tmp_path / "model.weights.h5")
    export_keras(trainer.task, trainer.model, parameters, path, sample)
    if trainer.task.make is functional:
        export_keras(trainer.task, trainer.model, parameters, str(tmp_path / "model.keras"), sample)


def test_the_trial_before_the_training_takes_them(trainer):
    try_export(trainer.task, trainer.model, trainer.store.layout)


def test_no_two_inputs_get_one_argument():
    found = python_arguments(["a-b", "a_b", "a.b", "a_b_2", "用", "户", "def", "ok"])
    assert found == {
        "a-b": "a_b_3",
        "a.b": "a_b_4",
        "用": "feature",
        "户": "feature_2",
        "def": "feature_def",
    }
    assert python_arguments(["a", "A", "a_2"]) == {"A": "A_3"}  # case does not tell them apart
