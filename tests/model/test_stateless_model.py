"""What a model's layers become."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models import (
    FEATURES,
    LABELS,
    Subclassed,
    TaskOf,
    features,
    frozen_afterwards,
    functional,
    run,
)
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.model.stateless_model import StatelessModel


@pytest.mark.parametrize("build", [functional(), Subclassed])
def test_embedding_layers_become_tables_and_hold_nothing_themselves(build):
    model = StatelessModel(TaskOf(build), seed=0)
    (table,) = model.tables
    assert (table.rows, table.dim) == (10, 4)
    assert table.name.endswith("embeddings")
    assert sorted(tuple(v.shape) for v in model.dense) == [(1,), (7, 1)]
    (lookup,) = model.lookups(features(), training=True)
    assert lookup.table == 0
    assert np.array_equal(lookup.ids, np.arange(6))


@pytest.mark.parametrize("build", [functional(), Subclassed])
def test_a_forward_pass_uses_the_rows_it_is_given(build):
    model = StatelessModel(TaskOf(build), seed=0)
    zeros, ones = run(model, [tf.zeros([6, 4])]), run(model, [tf.ones([6, 4])])
    kernel = model.initial_dense[:7]
    np.testing.assert_allclose(
        ones.outputs - zeros.outputs, np.full((6, 1), kernel[:4].sum()), atol=1e-6
    )
    error = float(tf.reduce_mean(tf.square(zeros.outputs)))
    own = 0.5 if build is Subclassed else 0.0
    assert float(zeros.loss) == pytest.approx(error + own, abs=1e-6)


def test_a_model_is_the_same_whatever_draws_beside_it():
    """As another thread may, from the generator that all of a process share."""

    def disturbed():
        random.uniform(0.0, 1.0)
        return build()

    build = functional()
    alone, beside = (StatelessModel(TaskOf(each), seed=3) for each in (build, disturbed))
    np.testing.assert_array_equal(alone.initial_dense, beside.initial_dense)


def test_the_same_model_is_built_for_the_same_seed():
    first, again, other = (StatelessModel(TaskOf(functional()), seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.initial_dense, again.initial_dense)
    assert not np.array_equal(first.initial_dense, other.initial_dense)
    assert [v.path for v in first.dense] == [v.path for v in again.dense]


def test_a_sequential_model_of_one_feature_gets_the_tensor_itself():
    def build():
        return keras.Sequential([keras.layers.Embedding(10, 4), keras.layers.Dense(1)])

    model = StatelessModel(TaskOf(build, FEATURES[:1]), seed=0)
    (lookup,) = model.lookups({"id": tf.range(3, dtype=tf.int64)}, training=False)
    assert lookup.ids.shape == (3,)


def test_constants_such_as_normalization_counts_are_kept():
    def build():
        x = keras.Input((3,), name="x")
        normalization = keras.layers.Normalization()
        normalization.adapt(np.arange(12.0).reshape(4, 3))
        return keras.Model(x, keras.layers.Dense(1)(normalization(x)))

    model = StatelessModel(TaskOf(build, FEATURES[1:]), seed=0)
    assert len(model.state) == 2
    assert model.initial_state.size == 6


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (functional(embeddings_regularizer="l2"), "'table': embeddings_regularizer"),
        (functional(embeddings_constraint="max_norm"), "'table': embeddings_constraint"),
        (functional(lora_rank=2), "'table': lora_rank"),
        (functional(dtype="float64"), "'table': its table would have dtype float64"),
        (functional(dtype="int8_from_float32"), "'table': quantization"),
        (frozen_afterwards, r"build_model\(\): nothing in the model is trainable"),
    ],
)
def test_options_that_cannot_work_on_a_table_are_refused_by_name(build, named):
    with pytest.raises(UserError, match=named):
        StatelessModel(TaskOf(build), seed=0)


def test_constraints_of_dense_parameters_are_refused_by_name():
    build = functional(embeddings_constraint="max_norm")
    with pytest.raises(UserError, match="variable 'table/embeddings' has a constraint"):
        StatelessModel(TaskOf(build), seed=0, dense_table_bytes=160)


def test_small_tables_may_stay_dense_and_refuse_bad_ids():
    task = TaskOf(functional(embeddings_regularizer="l2", embeddings_initializer="ones"))
    model = StatelessModel(task, seed=0, dense_table_bytes=160)
    assert model.tables == []
    assert "table/embeddings" in [v.path for v in model.dense]
    assert model.lookups(features(), training=True) == []
    forward = run(model, [])
    error = keras.losses.MeanSquaredError()(LABELS["label"], forward.outputs)
    assert float(forward.loss - error) == pytest.approx(0.4, abs=1e-5)
    assert len(StatelessModel(TaskOf(functional()), seed=0, dense_table_bytes=159).tables) == 1
    for bad in (-1, 10):
        inputs = {"id": tf.constant([bad], tf.int64), "x": tf.ones([1, 3])}
        message = f'id {bad} is outside table "table/embeddings", which has rows 0 to 9'
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(model, [], inputs)


def test_float_ids_of_a_large_table_are_refused():
    def build():
        return keras.Sequential([keras.layers.Embedding(1 << 25, 4, name="large")])

    with pytest.raises(UserError, match=r"large': its ids are float32, .*keras\.Input"):
        StatelessModel(TaskOf(build, FEATURES[:1]), seed=0)


class Wrong(keras.layers.Layer):
    """A layer that says another shape than it gives."""

    def call(self, x):
        return keras.ops.concatenate([x, x], axis=-1)

    def compute_output_shape(self, shape):
        return shape


def test_layers_that_say_another_shape_than_they_give_are_called_as_fit_does():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.wrong, self.dense = Wrong(), keras.layers.Dense(1)

        def call(self, x):
            return self.dense(keras.ops.reshape(self.wrong(x), (-1, 6)))

    model = StatelessModel(TaskOf(Model, FEATURES[1:]), seed=0)
    assert [tuple(v.shape) for v in model.dense] == [(6, 1), (1,)]


class Lookup(keras.layers.Layer):
    """A layer that looks for a name which nobody has."""

    def call(self, x):
        return x * {"a": 1.0}["b"]


def test_an_error_has_its_layer_and_its_type():
    message = (
        r"the task's features .*: in layer '.*prices': test_.*:\d+, `return .*`: KeyError: 'b'"
    )
    with pytest.raises(UserError, match=message):
        StatelessModel(TaskOf(Deferred, FEATURES[1:]), seed=0)


class Deferred(keras.Model):
    """A model that fails when it is called."""

    def __init__(self):
        super().__init__()
        self.lookup = Lookup(name="prices")

    def call(self, x):
        return self.lookup(x)


def test_a_feature_may_not_have_the_name_of_anothers_row_lengths():
    def build():
        return keras.Sequential([keras.layers.Dense(1)])

    names = (Feature("x", "float32", (None,)), Feature("x_row_lengths", "int64"))
    with pytest.raises(UserError, match="'x_row_lengths' has the name of the row lengths of 'x'"):
        StatelessModel(TaskOf(build, names), seed=0)


def test_ids_made_from_rows_are_refused_by_name():
    def build():
        id_in, x = keras.Input((), name="id", dtype="int64"), keras.Input((3,), name="x")
        row = keras.layers.Embedding(10, 4, name="first")(id_in)
        best = keras.ops.argmax(row, axis=-1)
        return keras.Model([id_in, x], keras.layers.Embedding(4, 2, name="second")(best))

    with pytest.raises(UserError, match="'second'"):
        StatelessModel(TaskOf(build), seed=0)


def test_an_input_that_is_no_feature_is_named():
    def build():
        return keras.Sequential([keras.Input((3,), name="y"), keras.layers.Dense(1)])

    def two():
        y, x = keras.Input((3,), name="y"), keras.Input((3,), name="x")
        return keras.Model([y, x], keras.layers.Dense(1)(keras.layers.Add()([x, y])))

    with pytest.raises(UserError, match="'y' is no feature"):
        StatelessModel(TaskOf(two), seed=0)
    with pytest.raises(UserError, match="cannot be called with the task's features"):
        StatelessModel(TaskOf(build, (Feature("x", "float32", (2,)),)), seed=0)


def test_parameters_of_another_dtype_are_refused():
    def build():
        x = keras.Input((3,), name="x")
        return keras.Model(x, keras.layers.Dense(1, dtype="float64")(x))

    with pytest.raises(UserError, match="float64"):
        StatelessModel(TaskOf(build, FEATURES[1:]), seed=0)


def test_layers_that_share_a_path_are_refused():
    class Twins(keras.Model):
        def __init__(self):
            super().__init__()
            self.one, self.two = (keras.layers.Dense(1, name="twin") for _ in range(2))

        def call(self, inputs):
            return self.one(inputs["x"]) + self.two(inputs["x"])

    with pytest.raises(UserError, match="'twins/twin/"):
        StatelessModel(TaskOf(Twins), seed=0)
