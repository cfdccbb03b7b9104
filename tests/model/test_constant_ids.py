"""An embedding that is called on a constant while the model is built, as for positions."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training_fixtures import Trainer
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.experiment.task import Task
from tfps.export.loaded_model import ExportedModel
from tfps.model import embedding_layers
from tfps.model.builder import build_model
from tfps.model.stateless_model import StatelessModel
from trainer.datasets.generation import generate

BASKET, ITEMS = 6, 40


@dataclasses.dataclass(frozen=True)
class Positioned(Task):
    """Whether a basket is bought: its items, with where each lies."""

    tied: bool = False

    def features(self):
        return (Feature("items", "int64", (BASKET,), ITEMS),)

    def label(self):
        return Feature("label", "int64", vocabulary=2)

    def build_model(self):
        items = keras.Input((BASKET,), name="items", dtype="int64")
        table = keras.layers.Embedding(ITEMS, 8, name="item")
        of_place = table if self.tied else keras.layers.Embedding(BASKET, 8, name="place")
        rows = table(items) + of_place(keras.ops.arange(BASKET))
        hidden = keras.layers.Dense(8, "tanh")(keras.layers.Flatten()(rows))
        return keras.Model({"items": items}, keras.layers.Dense(1)(hidden))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.Adagrad(0.1)


FEATURES = {"items": tf.constant([[0, 1, 2, 3, 4, 5], [39, 7, 7, 7, 0, 1]], tf.int64)}


@pytest.mark.parametrize("tied", [False, True])
def test_it_gives_the_rows_that_keras_gives(tied, caplog):
    task = Positioned(tied)
    model, theirs = StatelessModel(task, 3), build_model(task, 3)
    values = {variable.path: variable.value for variable in theirs.variables}
    assert [table.name for table in model.tables] == ["item/embeddings"]
    assert ("'place' is no part of the model" in caplog.text) is not tied
    dense = [values[variable.path] for variable in model.dense]
    rows = [tf.gather(values["item/embeddings"], FEATURES["items"])]
    labels = {"label": tf.zeros([2], tf.int64)}
    ours = model.forward(dense, [], rows, tf.zeros([2], tf.int64), FEATURES, labels, False)
    np.testing.assert_allclose(ours.outputs, theirs(FEATURES), atol=1e-6)


def test_what_is_exported_is_what_was_trained(tmp_path):
    task = Positioned()
    trainer = Trainer(generate(Experiment("places", task), str(tmp_path / "data"), 200, 1), task)
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    trainer.export(tmp_path / "export")
    labels = {"label": tf.zeros([2], tf.int64)}
    _, ours, _ = trainer.step.predict(FEATURES, labels)
    found = ExportedModel.load(str(tmp_path / "export")).predict(FEATURES)
    np.testing.assert_allclose(found["predictions"], ours["predictions"], atol=1e-6)


class InLists(keras.Model):
    """A model of one's own that holds its layers in a list."""

    def __init__(self):
        super().__init__()
        self.tables = [keras.layers.Embedding(ITEMS, 4) for _ in range(2)]
        self.dense = keras.layers.Dense(1)

    def call(self, items):
        rows = keras.ops.concatenate([table(items) for table in self.tables], axis=-1)
        return self.dense(keras.ops.mean(rows, axis=1))


@dataclasses.dataclass(frozen=True)
class Listed(Positioned):
    def build_model(self):
        return InLists()


def test_layers_in_a_list_are_a_part_of_the_model(caplog):
    model = StatelessModel(Listed(), 3)
    assert [table.rows for table in model.tables] == [ITEMS, ITEMS]
    assert not caplog.records


def test_a_table_that_cannot_be_a_constant_is_refused(monkeypatch):
    monkeypatch.setattr(embedding_layers, "_DRAWN_BYTES", 4 * BASKET * 8 - 1)
    with pytest.raises(UserError, match="'place': it is called on constants alone"):
        StatelessModel(Positioned(), 3)
