"""What is found of how a step changes a model's state."""

import keras
import pytest

from tests.models import FEATURES, TaskOf, dense_model
from tfps.model.stateless_model import StatelessModel


@keras.saving.register_keras_serializable("tests")
class Followed(keras.layers.Layer):
    """Changes a state variable in a way that is given."""

    def __init__(self, change):
        super().__init__()
        self._change = change

    def build(self, shape):
        self.state = self.add_weight(shape=shape[1:], initializer="ones", trainable=False)

    def call(self, inputs):
        of_batch = keras.ops.stop_gradient(keras.ops.mean(inputs, 0))
        changed = self._change(self.state.value, of_batch)
        if changed is not None:
            self.state.assign(changed)
        return inputs + self.state


def model_of(layer):
    return StatelessModel(TaskOf(dense_model(layer), FEATURES[1:]), seed=0)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (lambda old, batch: 0.25 * old + batch, 0.25),
        (lambda old, batch: old + 0.25 * (batch - old), 0.75),
        (lambda old, batch: -(batch - old / 2.0), 0.5),
        (lambda old, batch: keras.ops.stop_gradient(old) + 1.0, 1.0),
        (lambda old, batch: batch, 0.0),
        (lambda old, batch: keras.ops.maximum(old, batch), None),
        (lambda old, batch: 0.5 * keras.ops.roll(old, 1) + batch, None),
        (lambda old, batch: batch * old, None),
        (lambda old, batch: old * old, None),
        (lambda old, batch: 0.5 * keras.ops.mean(old) + batch, None),
        (lambda old, batch: old * keras.ops.convert_to_tensor([0.1, 0.2, 0.3]), None),
        (lambda old, batch: keras.ops.cast(keras.ops.cast(old, "int32"), "float32"), None),
    ],
)
def test_what_a_step_keeps_is_read_from_its_graph(change, kept):
    model = model_of(lambda: Followed(change))
    assert model.state_kept == (kept,)
    assert model.state_changes == (True,)


def test_state_that_stays_is_not_changed():
    model = model_of(lambda: Followed(lambda old, batch: None))
    assert model.state_kept == (1.0,)
    assert model.state_changes == (False,)


def test_layers_of_keras():
    model = model_of(lambda: keras.layers.BatchNormalization(momentum=0.9))
    assert model.state_kept == pytest.approx((0.9, 0.9))
    model = model_of(lambda: keras.layers.SpectralNormalization(keras.layers.Dense(4)))
    assert model.state_kept == (None,)
