"""The embedding layer without a vocabulary, by itself and in a model whose table is elsewhere."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.embedding_bags import (
    COMBINERS,
    DIM,
    FORMS,
    PADDED,
    ROWS,
    ragged,
)
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.layers.dynamic_embedding import DynamicEmbedding, KeyOptions, string_keys
from tfps.layers.embedding import Embedding
from tfps.model.embedding_layers import EmbeddingLayers
from tfps.model.stateless_model import StatelessModel

MATRIX = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("f4")
GREATEST = 2**63 - 1


def answered(options, *call, answer=lambda keys: tf.gather(MATRIX, keys), **own):
    """What a layer returns when its table is elsewhere, and answers so when asked for keys."""
    layers = EmbeddingLayers()
    with layers.taken_over(), layers.answered_by(lambda asked, table, keys: answer(keys)):
        layer = DynamicEmbedding(DIM, **{"max_rows": 100, **options})
        result = layer(*call, **own)
    assert [table.keys for table in layers.tables] == [layer.options]
    return result


def static(*arguments, **options):
    return Embedding(
        ROWS, *arguments, embeddings_initializer=keras.initializers.Constant(MATRIX), **options
    )


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_are_combined_as_those_of_a_table_with_a_vocabulary(combiner, weighted):
    for ids, weights, mask in FORMS.values():
        own = {"weights": weights if weighted else None, "mask": mask}
        found = answered({"combiner": combiner, "padding": -1}, ids, **own)
        np.testing.assert_allclose(found, static(DIM, combiner, padding=-1)(ids, **own), atol=1e-6)


def test_without_a_combiner_the_form_of_the_ids_stays():
    rows = answered({"padding": -1}, PADDED)
    np.testing.assert_array_equal(rows, static(DIM, padding=-1)(PADDED))
    bags = answered({}, ragged([[3, 1], []]))
    np.testing.assert_array_equal(bags[0], MATRIX[[3, 1]])
    assert bags[1].shape == (0, DIM)


def test_any_int64_is_asked_for_as_it_is():
    asked = []

    def answer(keys):
        asked.extend(keys.numpy().tolist())
        return tf.zeros([*keys.shape, DIM])

    keys = [-GREATEST - 1, -GREATEST, -1, 0, GREATEST]
    for ids in (tf.constant(keys, tf.int64), tf.constant([-7], tf.int32)):
        answered({}, ids, answer=answer)
    assert asked == [*keys, -7]


def test_strings_are_known_by_a_hash_that_is_the_same_everywhere():
    words = tf.constant([["", "red"], ["grün", "red"]])
    keys = string_keys(words).numpy()
    assert keys.dtype == np.int64
    assert (keys >= 0).all()
    assert keys[0, 1] == keys[1, 1]
    assert len(np.unique(keys)) == 3
    # What FarmHash gave once; checkpoints rely on it.
    assert keys[0].tolist() == [1936946117179621456, 991092756973969910]
    options = {"key_dtype": "string", "combiner": "sum", "padding": ""}
    sums = answered(options, words, answer=lambda asked: tf.ones([*asked.shape, DIM]))
    np.testing.assert_array_equal(sums, [[1.0] * DIM, [2.0] * DIM])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows": 0}, "max_rows=0: a table has at least one row"),
        ({"max_rows": None}, "max_rows=None must be a whole number"),
        ({"max_rows": "10"}, "max_rows='10' must be a whole number"),
        ({"admit_after": 1.5}, r"admit_after=1\.5 must be a whole number"),
        ({"forget_after": 1e9 + 0.5}, r"forget_after=1000000000\.5 must be a whole number"),
        ({"admit_after": 0}, "admit_after=0 does not lie between 1 and 100"),
        ({"admit_after": 101}, "admit_after=101 does not lie between 1 and 100"),
        ({"forget_after": 0}, "forget_after=0: say after how many records, or None"),
        ({"forget_after_hours": 0.0}, r"forget_after_hours=0\.0: say after how many, or None"),
        (
            {"evict_first": "oldest"},
            "evict_first='oldest' is not one of least_recent, least_frequent, none",
        ),
        ({"min_norm": -0.5}, r"min_norm=-0\.5 is below 0"),
        ({"unknown": "random"}, "unknown='random' is not one of zeros, mean, trained"),
        ({"key_dtype": "int32"}, "key_dtype='int32' is not one of int64, string"),
        ({"combiner": "max"}, "combiner='max' is not one of None, sum, mean, sqrtn"),
    ],
)
def test_an_option_that_is_none_is_refused_with_the_layers_name(options, message):
    with pytest.raises(UserError, match=f"^layer 'bad': {message}$"):
        DynamicEmbedding(DIM, **{"max_rows": 10, **options}, name="bad")


@pytest.mark.parametrize(
    ("options", "ids", "message"),
    [
        ({}, tf.constant(["a"]), "made with key_dtype='int64', but is called with string"),
        ({"key_dtype": "string"}, PADDED, "made with key_dtype='string', but is called with int64"),
        ({"padding": ""}, PADDED, "padding='' cannot stand among ids of dtype int64"),
        ({}, tf.zeros([2, 2]), "ids are int32, int64 or strings, not float32"),
        ({"combiner": "sum"}, PADDED[:, 0], r"needs ids \[batch, n\], not \(5,\)"),
    ],
)
def test_misuse_is_refused_with_the_layers_name(options, ids, message):
    with pytest.raises(UserError, match=f"layer 'bad': .*{message}"):
        answered({"name": "bad", **options}, ids)


def test_keras_alone_cannot_train_it():
    with pytest.raises(
        UserError, match="own/table': a table without a vocabulary has no matrix that Keras could"
    ):
        keras.Sequential([keras.Input((3,), dtype="int64"), DynamicEmbedding(DIM, 10, name="own")])


def test_a_layer_is_made_again_from_its_config():
    layer = DynamicEmbedding(
        DIM,
        1000,
        "string",
        "mean",
        admit_after=3,
        forget_after=10_000,
        forget_after_hours=1.5,
        evict_first="least_frequent",
        min_norm=0.25,
        unknown="mean",
        embeddings_initializer=keras.initializers.RandomNormal(1.0, 2.0, seed=3),
        padding="",
        name="words",
        trainable=False,
        dtype="mixed_float16",
    )
    again = DynamicEmbedding.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.options == layer.options
    assert again.options.max_rows == 1000
    assert again.options.forget_after_hours == 1.5
    assert (again.name, again.trainable, again.compute_dtype) == ("words", False, "float16")
    by_name = keras.layers.deserialize(keras.layers.serialize(layer))
    assert by_name.get_config() == layer.get_config()


@dataclasses.dataclass(frozen=True)
class OneTable(Task):
    """What is done with a table without a vocabulary, `use` says."""

    use: str = "lookup"

    def features(self):
        return (Feature("key", "int64"),)

    def label(self):
        return Feature("label", "float32")

    def build_model(self):
        key = keras.Input((), name="key", dtype="int64")
        initializer = {
            "matrix": keras.initializers.Constant(MATRIX),
            "glorot": "glorot_uniform",
            "orthogonal": keras.initializers.Orthogonal(),
        }.get(self.use, "uniform")
        layer = DynamicEmbedding(DIM, ROWS, name="rows", embeddings_initializer=initializer)
        rows = layer(key)
        if self.use == "whole":
            rows = keras.ops.matmul(rows, keras.ops.transpose(layer.table.embeddings))
        if self.use == "regularizer":
            layer.table.embeddings_regularizer = keras.regularizers.L2()
        model = keras.Model(key, keras.layers.Dense(1)(rows))
        if self.use == "weights":
            layer.table.set_weights([MATRIX])
        return model

    def loss(self):
        return keras.losses.MeanSquaredError()

    def optimizer(self):
        return keras.optimizers.SGD(0.1)

    def predictions(self, outputs):
        return outputs[:, 0]


def test_a_model_has_a_table_of_as_many_rows_as_are_allowed():
    [table] = StatelessModel(OneTable(), 0).tables
    assert (table.name, table.rows, table.dim) == ("rows/table/embeddings", ROWS, DIM)
    assert table.keys == KeyOptions(ROWS)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("whole", "layer 'rows/table': the model uses its whole table .*has no matrix; call"),
        ("weights", "layer 'rows/table': rows of a table without a vocabulary belong to keys"),
        ("matrix", "'rows/table/embeddings': its initializer Constant looks at the shape"),
        ("glorot", "'rows/table/embeddings': its initializer GlorotUniform looks at the shape"),
        ("orthogonal", "'rows/table/embeddings': its initializer Orthogonal looks at the shape"),
        ("regularizer", "layer 'rows/table': embeddings_regularizer"),
    ],
)
def test_what_a_table_without_a_vocabulary_cannot_do_is_refused_by_name(use, message):
    with pytest.raises(UserError, match=message):
        StatelessModel(OneTable(use), 0)
