"""An exported model is held against the parameters before it counts."""

import dataclasses
import itertools
import logging
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.export_schema import schema
from tests.training_fixtures import Trainer, dataset
from tfps.errors import RunError
from tfps.export.loaded_model import ExportedModel
from tfps.export.saved_model import Sample

FEATURES = [{"name": "x", "dtype": "float32", "shape": [], "vocabulary_size": 0}]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)


@dataclasses.dataclass(frozen=True)
class Altered(Smoke):
    """The smoke model with a last layer of one's own."""

    last: object = None

    def build_model(self):
        model = super().build_model()
        return keras.Model(model.inputs, self.last()(model.output))


class Shift(keras.layers.Layer):
    """Adds a constant that is another one for every layer that is made."""

    numbers = itertools.count()

    def __init__(self):
        super().__init__()
        self.number = float(next(self.numbers))

    def call(self, x):
        return x + self.number


class Noise(keras.layers.Layer):
    """Adds noise, also when it does not train."""

    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(7)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed)


def test_a_model_that_is_another_one_when_it_is_built_again_is_not_put_in_place(manifest, tmp_path):
    path = tmp_path / "export"
    path.mkdir()
    path.joinpath("kept").touch()
    trainer = Trainer(manifest, Altered(last=Shift))
    message = (
        r"the exported model is not the one that was trained: its output 'predictions' differs on "
        r"128 of 128 records, first on record 0: \[[\d.]+\] exported, \[[\d.]+\] trained"
    )
    with pytest.raises(RunError, match=message):
        trainer.export(path)
    assert [each.name for each in tmp_path.iterdir()] == ["export"]
    assert [each.name for each in path.iterdir()] == ["kept"]


@pytest.mark.slow
def test_an_output_that_is_drawn_is_told_and_not_compared(manifest, tmp_path, caplog):
    trainer = Trainer(manifest, Altered(last=Noise))
    with caplog.at_level(logging.WARNING):
        trainer.export(tmp_path / "export")
    assert "output 'predictions' is drawn at random: it is not compared" in caplog.text
    assert pathlib.Path(tmp_path, "export", "schema.json").exists()


@pytest.fixture(scope="module")
def doubling(tmp_path_factory):
    """An exported model that doubles its input."""
    path = str(tmp_path_factory.mktemp("doubling"))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def double(x):
        return {"doubled": 2 * x}

    tf.saved_model.save(tf.Module(), path, {"serving_default": double})
    return ExportedModel(path, tf.saved_model.load(path), schema(FEATURES, FEATURES))


def compare(exported, inputs, predictions, **settings):
    values = {"x": tf.constant(inputs, tf.float32)}
    Sample(values, {"doubled": np.array(predictions, "f4")}, **settings).refuse_different(
        exported.predict
    )


def test_rounding_and_what_is_not_finite_are_no_difference(doubling):
    compare(doubling, [1, 2, 3], [2.0001, 4, 6])
    compare(doubling, [np.nan, np.inf, 1], [np.nan, np.inf, 2])
    compare(doubling, [0, 0, 0], [0, 1e-7, 0])
    compare(doubling, [1, 2, 3], [2.1, 4, 6], rounding=0.05)


@pytest.mark.parametrize(
    ("predictions", "what"),
    [
        ([2.5, 5, 6.5], r"differs on 1 of 3 records, first on record 0: \[2.\] exported, \[2.5\]"),
        ([2.5, 4.5, np.nan], "differs on 3 of 3 records"),
        ([2, 5, np.inf], "differs on 1 of 3 records, first on record 2"),
        ([[2], [4], [6]], r"has the shape \[3\], not \[3, 1\]"),
    ],
)
def test_any_other_difference_is_told(doubling, predictions, what):
    with pytest.raises(RunError, match=f"its output 'doubled' {what}"):
        compare(doubling, [1, 2.5, 3.25], predictions)


def test_rounding_may_decide_about_few_whole_numbers(doubling):
    wanted = np.full(200, 2.0)
    wanted[:2] = 4
    compare(doubling, np.ones(200), wanted)
    wanted[2] = 4
    with pytest.raises(RunError, match="differs on 3 of 200 records"):
        compare(doubling, np.ones(200), wanted)
