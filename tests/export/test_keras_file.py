"""A trained model as files that Keras reads without tfps."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.models import Unloadable
from tests.training_fixtures import Trainer, dataset
from tfps.errors import UserError
from tfps.export.keras_file import export_keras
from tfps.export.parameters import StoreParameters
from trainer.chief.exports import predict_sample

BATCH = {"numbers": tf.reshape(tf.linspace(-1.0, 1.0, 12), [3, 4]), "token": tf.constant([0, 1, 7])}


@dataclasses.dataclass(frozen=True)
class Towered(Smoke):
    """The smoke model with a tower that is a model of its own."""

    def build_model(self):
        numbers = keras.Input((4,), name="numbers")
        token = keras.Input((), name="token", dtype="int64")
        within = keras.Input((self.dim,))
        tower = keras.Model(within, keras.layers.Dense(3, "relu")(within), name="tower")
        rows = tower(keras.layers.Embedding(1000, self.dim, name="token_rows")(token))
        joined = keras.layers.Concatenate()([numbers, rows])
        inputs = {"numbers": numbers, "token": token}
        return keras.Model(inputs, keras.layers.Dense(1)(joined))


@pytest.fixture(name="trained", scope="module")
def trained_fixture(tmp_path_factory):
    manifest = dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)
    trainer = Trainer(manifest, Towered())
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    return trainer


def write(trainer, path, part=""):
    parameters = StoreParameters(trainer.model, trainer.store)
    sample = predict_sample(trainer.task, parameters, trainer.manifest)
    export_keras(trainer.task, trainer.model, parameters, str(path), sample, part)


def predicted(trainer):
    labels = {"label": tf.zeros([3], tf.int64)}
    return trainer.step.predict(BATCH, labels)[1]["predictions"]


def test_keras_loads_the_model_and_its_weights(trained, tmp_path):
    write(trained, tmp_path / "trained.keras")
    write(trained, tmp_path / "trained.weights.h5")
    fresh = Towered().build_model()
    fresh.load_weights(tmp_path / "trained.weights.h5")
    for model in (keras.saving.load_model(tmp_path / "trained.keras"), fresh):
        found = trained.task.predictions(model(BATCH))
        np.testing.assert_allclose(found, predicted(trained), atol=1e-6)


def test_a_tower_is_a_model_by_itself(trained, tmp_path):
    write(trained, tmp_path / "tower.keras", "tower")
    tower = keras.saving.load_model(tmp_path / "tower.keras")
    kernel, bias = trained.store.read_dense()[:2]
    assert tower.name == "tower"
    np.testing.assert_array_equal(tower.trainable_variables[0], kernel)
    np.testing.assert_array_equal(tower.trainable_variables[1], bias)
    with pytest.raises(UserError, match="no model 'attic' within it; it has tower"):
        write(trained, tmp_path / "attic.keras", "attic")


@dataclasses.dataclass(frozen=True)
class Unsaved(Smoke):
    """A model that Keras can save, but not load."""

    def build_model(self):
        model = super().build_model()
        return keras.Model(model.inputs, Unloadable(np.array([2.0], "f4"))(model.output))


def test_a_model_that_keras_cannot_load_again_is_refused(trained, tmp_path):
    trainer = Trainer(trained.manifest, Unsaved())
    with pytest.raises(UserError, match=r"cannot be saved and loaded by Keras .* get_config\(\)"):
        write(trainer, tmp_path / "model.keras")
    assert not list(tmp_path.iterdir())
    write(trainer, tmp_path / "model.weights.h5")
