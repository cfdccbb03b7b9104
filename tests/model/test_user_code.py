"""What fails in a user's own code is one line: the layer, the line of code and the reason."""

import dataclasses
from collections.abc import Callable

import keras
import pytest
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.errors import UserError, reason_of
from tfps.model.compiled_task import task_of
from tfps.model.stateless_model import StatelessModel

LABEL, FEATURES = Feature("y", "float32"), (Feature("items", "int64", (4,), vocabulary=9),)


class Cell(keras.layers.Layer):
    """Decides by a value, which no graph can."""

    state_size = 3

    def call(self, x, states):
        if keras.ops.mean(x) > 0:
            return x, [x]
        return states[0], states


class Counted(keras.layers.Layer):
    """Counts its calls."""

    def __init__(self, dtype):
        super().__init__(name="counted")
        self.calls = self.add_weight((), "zeros", dtype, trainable=False, name="calls")

    def call(self, rows):
        self.calls.assign_add(1)
        return rows


@dataclasses.dataclass(frozen=True)
class Subclassed:
    """Makes a model that is not functional."""

    recurrent: Callable[[], keras.layers.Layer]

    def __call__(self):
        return keras.Sequential(
            [keras.layers.Embedding(9, 3), self.recurrent(), keras.layers.Dense(1)]
        )


def tried(recurrent, batch=None, functional=True):
    def build():
        items = keras.Input((4,), batch, name="items", dtype="int64")
        rows = recurrent()(keras.layers.Embedding(9, 3)(items))
        model = keras.Model(items, keras.layers.Dense(1)(rows))
        if not functional:
            model = Subclassed(recurrent)()
        model.compile("sgd", "mse")
        return model

    return StatelessModel(task_of(build, LABEL, FEATURES), seed=0)


@pytest.mark.parametrize("functional", [True, False])
def test_code_that_cannot_be_traced_is_named_with_its_layer_and_line(functional):
    with pytest.raises(
        UserError,
        match=r"in layer '(sequential/)?rnn/cell': test_user_code.py:\d+, "
        r"`if keras.ops.mean\(x\) > 0:`: Using a symbolic",
    ):
        tried(lambda: keras.layers.RNN(Cell(name="cell"), name="rnn"), functional=functional)


def test_a_build_model_that_fails_is_named_with_its_line():
    with pytest.raises(
        UserError, match=r"function that makes the model fails: test_user_code.py:\d+, `rows = "
    ):
        tried(lambda: keras.layers.LSTM(3, stateful=True))


def test_a_stateful_layer_is_refused_with_the_reason():
    with pytest.raises(UserError, match="layer 'lstm' has stateful=True: it begins a batch where"):
        tried(lambda: keras.layers.LSTM(3, stateful=True, name="lstm"), batch=8)


def test_a_counter_of_integers_is_refused_with_the_way_out():
    def counted(dtype):
        return keras.Sequential([Counted(dtype), keras.layers.Flatten()])

    with pytest.raises(UserError, match=r"'.*counted/calls' \(int32\) .* add_weight\(dtype='float"):
        tried(lambda: counted("int32"))
    model = tried(lambda: counted("float32"))
    assert model.state_kept == (1.0,)  # every worker's calls count


def test_tensorflows_account_of_frames_is_no_reason():
    @tf.function
    def outer(x):
        for _ in tf.range(2):
            x = inner(x)
        return x

    def inner(x):
        raise ValueError("the reason,\nin two lines")

    with pytest.raises(ValueError, match="in user code:") as caught:
        outer(tf.constant(1.0))
    assert reason_of(caught.value) == "ValueError: the reason, in two lines"
    assert reason_of(ValueError("bad.\n\nArguments received by Dense.call():\n  • x=1")) == "bad."
    assert reason_of(KeyError("user")) == "KeyError: 'user'"
