"""Losses, labels, steps and predictions of a model."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models import (
    FEATURES,
    LABELS,
    Subclassed,
    TaskOf,
    dense_model,
    functional,
    run,
)
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.model.stateless_model import StatelessModel


@pytest.mark.quick("train_step")
@pytest.mark.parametrize("step", ["train_step", "test_step", "predict_step"])
def test_a_model_with_a_step_of_its_own_is_refused(step):
    kind = type("Stepper", (Subclassed,), {step: lambda self, data: {}})
    with pytest.raises(UserError, match=rf"Stepper overrides {step}\(\)"):
        StatelessModel(TaskOf(kind), seed=0)


def test_a_loss_that_does_not_fit_is_refused_with_the_shapes():
    class Wide(TaskOf):
        def loss(self):
            return keras.losses.CategoricalCrossentropy()

    class Vector(TaskOf):
        def loss(self):
            return keras.losses.MeanSquaredError(reduction="none")

    class Nothing(TaskOf):
        loss = Task.loss

    build = functional()
    with pytest.raises(UserError, match=r"loss\(\) of Wide fails in training .*float32 \(None,\)"):
        StatelessModel(Wide(build), seed=0)
    with pytest.raises(UserError, match=r"loss\(\) of Vector gives a tensor of shape \(None,\)"):
        StatelessModel(Vector(build), seed=0)
    with pytest.raises(UserError, match=r"Nothing has neither loss\(\) nor compute_loss\(\)"):
        StatelessModel(Nothing(build), seed=0)


def test_weights_that_are_no_numbers_are_refused():
    given = []

    class Weighted(TaskOf):
        def sample_weight(self, labels):
            return given[-1]

    task = Weighted(functional())
    for wrong in ("64", 1.0, [1.0], object(), tf.constant(["x"]), {"label": None, "other": "x"}):
        given.append(wrong)
        with pytest.raises(UserError, match=r"Weighted\.sample_weight\(\) returns .*; return a te"):
            StatelessModel(task, seed=0)


def test_predictions_that_cannot_be_computed_are_refused():
    class Missing(TaskOf):
        def predictions(self, outputs):
            return outputs["score"]

    class Mean(TaskOf):
        def predictions(self, outputs):
            return keras.ops.mean(outputs)

    with pytest.raises(UserError, match=r"predictions\(\) of Missing fails"):
        StatelessModel(Missing(functional()), seed=0)
    with pytest.raises(UserError, match=r"predictions\(\) of Mean: predictions is a scalar"):
        StatelessModel(Mean(functional()), seed=0)


def test_an_integer_variable_that_changes_is_refused_by_name():
    class Counter(keras.layers.Layer):
        def build(self, shape):
            self.calls = self.add_weight(dtype="int32", trainable=False, name="calls")

        def call(self, inputs):
            self.calls.assign_add(1)
            return inputs

    with pytest.raises(UserError, match=r"'counter/calls' \(int32\) changes"):
        StatelessModel(TaskOf(dense_model(Counter), FEATURES[1:]), seed=0)


class OwnLoss(keras.Model):
    """Its loss holds that of its regularizer, its labels' and a metric, as Keras's guide shows."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_regularizer="l2")
        self.tracker = keras.metrics.Mean()

    def call(self, inputs):  # no training argument
        return self.dense(inputs["x"])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        loss = keras.ops.mean(keras.ops.square(y_pred[:, 0] - y)) + sum(self.losses)
        self.tracker.update_state(loss)
        return loss


@dataclasses.dataclass(frozen=True)
class Lossless(TaskOf):
    loss = Task.loss


def test_the_loss_of_a_model_that_computes_it_itself():
    model = StatelessModel(Lossless(OwnLoss), seed=0)
    assert model.state == []
    kernel = model.initial_dense[:3].sum()
    squares = np.square(model.initial_dense).sum()
    expected = kernel**2 + 0.01 * squares
    assert float(run(model, []).loss) == pytest.approx(expected, abs=1e-5)


def compiled_without_a_loss(adds):
    """A layer of it adds the loss, or nothing does: what it is compiled with is its optimizer."""

    def build():
        layer = keras.layers.ActivityRegularization(l2=0.5 if adds else 0.0, name="penalty")
        x = keras.Input((3,), name="x")
        start = keras.initializers.GlorotUniform(3)
        hidden = keras.layers.Dense(2, kernel_initializer=start, use_bias=False)(x)
        model = keras.Model(x, layer(hidden) if adds else hidden)
        model.compile(keras.optimizers.SGD(0.1))
        return model

    return build


def test_a_model_may_have_no_loss_but_those_that_its_layers_add():
    build = compiled_without_a_loss(adds=True)
    model = StatelessModel(Lossless(build, FEATURES[1:]), seed=0)
    x, seed = np.arange(18, dtype=np.float32).reshape(6, 3) / 10, tf.zeros([2], tf.int64)
    plain = build()
    expected = plain.evaluate(x, np.zeros(6), batch_size=6, verbose=0)
    forward = model.forward(
        [plain.weights[0].value], [], [], seed, {"x": tf.constant(x)}, LABELS, training=True
    )
    assert expected > 0.1
    assert float(forward.loss) == pytest.approx(expected, rel=1e-6)


def test_a_compiled_model_without_any_loss_is_refused():
    build = compiled_without_a_loss(adds=False)
    with pytest.raises(UserError, match=r"compute_loss\(\) of Functional .*No loss to compute"):
        StatelessModel(Lossless(build, FEATURES[1:]), seed=0)


def test_two_losses_are_refused():
    with pytest.raises(UserError, match=r"OwnLoss overrides compute_loss\(\), and TaskOf has loss"):
        StatelessModel(TaskOf(OwnLoss), seed=0)


def test_an_embedding_layer_called_by_the_loss_is_refused():
    class Late(Subclassed):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return keras.ops.mean(self.table(x["id"]))

    with pytest.raises(UserError, match=r"embedding' is called by compute_loss\(\)"):
        StatelessModel(Lossless(Late), seed=0)


@dataclasses.dataclass(frozen=True)
class TwoLabels(TaskOf):
    def label(self):
        return Feature("a", "float32"), Feature("b", "float32")

    def loss(self):
        return {"a": keras.losses.MeanSquaredError(), "b": keras.losses.MeanAbsoluteError()}


@pytest.mark.parametrize("named", [True, False])
def test_a_loss_for_each_of_several_outputs(named):
    def build():
        x = keras.Input((3,), name="x")
        a, b = (keras.layers.Dense(1, name=f"head_{n}")(x) for n in "ab")
        return keras.Model(x, {"a": a, "b": b} if named else [a, b])

    model = StatelessModel(TwoLabels(build, FEATURES[1:]), seed=0)
    assert model.prediction_names == ("a", "b")
    zero = [tf.zeros(v.shape) for v in model.dense]
    labels = {"a": tf.fill([6], 2.0), "b": tf.fill([6], -3.0)}
    seed = tf.zeros([2], tf.int64)
    forward = model.forward(zero, [], [], seed, {"x": tf.ones([6, 3])}, labels, training=True)
    assert float(forward.loss) == pytest.approx(4.0 + 3.0, abs=1e-6)


def test_outputs_that_do_not_tell_their_label_are_refused():
    with pytest.raises(
        UserError, match=r"the model has 1 outputs, but there are 2 labels \(a, b\)"
    ):
        StatelessModel(TwoLabels(dense_model(), FEATURES[1:]), seed=0)


def test_a_label_that_varies_in_length_is_refused():
    class Ragged(TaskOf):
        def label(self):
            return Feature("tags", "int64", (None,))

    with pytest.raises(UserError, match=r"label 'tags' has shape \(None,\)"):
        StatelessModel(Ragged(functional()), seed=0)


def test_a_policy_set_by_a_model_is_its_own():
    def build():
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
        return Subclassed()

    before = keras.config.dtype_policy().name
    model = StatelessModel(TaskOf(build), seed=0)
    assert keras.config.dtype_policy().name == before
    assert {v.dtype for v in model.dense} == {"float32"}
    forward = run(model, [tf.zeros([6, 4])])
    assert (forward.outputs.dtype, forward.loss.dtype) == (tf.bfloat16, tf.float32)
    assert model.loss_scaling is None


def test_a_recurrent_layer_with_dropout_can_be_trained():
    def build():
        id_in = keras.Input((5,), name="id", dtype="int64")
        rows = keras.layers.Embedding(10, 4, mask_zero=True)(id_in)
        return keras.Model(id_in, keras.layers.Dense(1)(keras.layers.GRU(3, dropout=0.5)(rows)))

    model = StatelessModel(TaskOf(build, (Feature("id", "int64", (5,), 10),)), seed=0)
    assert len(model.dense) == 5
