"""A model is tried before it is trained: whether it can be exported after it."""

import dataclasses

import keras
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.training_fixtures import Trainer
from tfps.errors import RunError, UserError
from tfps.export.saved_model import try_export
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.layout import StoreLayout


class Failing(keras.layers.Layer):
    """Fails when it is called in a model that was built often enough."""

    def __init__(self, fails):
        super().__init__(name="failing")
        self.fails = fails

    def call(self, inputs):
        if self.fails:
            raise RuntimeError("no such\nthing")
        return inputs

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, inputs.dtype)


@dataclasses.dataclass(frozen=True)
class FailsLater(Smoke):
    """Its model fails from some building of it on."""

    since: int = 1
    built: list = dataclasses.field(default_factory=list)

    def build_model(self):
        self.built.append(1)
        model = super().build_model()
        layer = Failing(len(self.built) > self.since)
        return keras.Model(model.inputs, layer(model.outputs[0]))


def tried(task):
    model = StatelessModel(task, 0)
    try_export(task, model, StoreLayout.of(model, Rules.of(task, model, "keras"), 1))


def test_what_fails_is_told_with_layer_line_reason_and_way_out():
    with pytest.raises(
        UserError,
        match=r"not exported as a SavedModel: in layer 'failing': test_trial.py:\d+, `raise .*`: "
        r"no such thing\. Change that, or train with --train.export=none and .* --format=keras",
    ):
        tried(FailsLater())
    assert not tf.io.gfile.exists("ram://tfps/trial_export")


def test_a_model_without_lookup_tables_is_tried_too():
    task = FailsLater(since=9)
    tried(task)
    assert len(task.built) == 2


def test_an_export_that_fails_nevertheless_says_what_is_left(tmp_path):
    trainer = Trainer(None, FailsLater())
    with pytest.raises(
        RunError, match=r"cannot be exported .*: test_trial.py:\d+, `.*`: no such thing\. What was "
    ):
        trainer.export(tmp_path / "export")
    assert not list(tmp_path.iterdir())


class Unheld(keras.layers.Layer):
    """Uses a variable that it does not hold."""

    def __init__(self):
        super().__init__(name="unheld")
        variable = tf.Variable(1.0)
        self.read = lambda: variable * 1.0

    def call(self, inputs):
        return inputs * self.read()


class WithUnheld(Smoke):
    def build_model(self):
        model = super().build_model()
        return keras.Model(model.inputs, Unheld()(model.outputs[0]))


def test_the_layer_is_named_that_uses_what_it_does_not_hold():
    with pytest.raises(UserError, match=r"is used by layer 'unheld' that is no attribute"):
        tried(WithUnheld())


class Ragged(Smoke):
    """A lookup table in a model of a feature that varies in length, and a function of it."""

    def features(self):
        return (
            dataclasses.replace(
                super().features()[1], name="words", dtype="string", vocabulary=None, shape=(None,)
            ),
        )

    def build_model(self):
        words = keras.Input((None,), name="words", dtype="string", ragged=True)
        dense = keras.layers.Lambda(
            lambda given: given.to_tensor(shape=(None, 3)), output_shape=(3,), dtype="string"
        )(words)
        ids = keras.layers.StringLookup(vocabulary=["a", "b"], mask_token="")(dense)
        rows = keras.layers.Embedding(4, 2)(ids)
        return keras.Model(words, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))


def test_a_ragged_feature_may_be_made_dense_in_a_function(tmp_path):
    tried(Ragged())
    Trainer(None, Ragged()).export(tmp_path / "export")
