"""The embedding layer by itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.embedding_bags import (
    BAGS,
    COMBINERS,
    DIM,
    FORMS,
    PADDED,
    PADDED_WEIGHTS,
    ROWS,
    WEIGHTS,
    WIDTH,
    coefficients,
    ones,
    ragged,
)
from tfps.errors import UserError
from tfps.layers.embedding import Embedding


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_form_of_ids_is_combined_as_numpy_and_tensorflow_do(combiner, weighted):
    layer = Embedding(ROWS, DIM, combiner, padding=-1)
    weights = WEIGHTS if weighted else ones(BAGS)
    for ids, own, mask in FORMS.values():
        found = layer(ids, weights=own if weighted else None, mask=mask)
        table = layer.table.embeddings.numpy()
        expected = coefficients(BAGS, weights, combiner) @ table
        np.testing.assert_allclose(found, expected, atol=1e-6)
        by_tensorflow = tf.nn.safe_embedding_lookup_sparse(
            tf.constant(table),
            ragged(BAGS).to_sparse(),
            ragged(weights, tf.float32).to_sparse(),
            combiner=combiner,
        )
        np.testing.assert_allclose(found, by_tensorflow, atol=1e-6)
    assert len(layer.weights) == 1


def test_gradients_flow_to_weights_and_only_to_the_rows_of_real_ids():
    layer = Embedding(ROWS, DIM, "mean", padding=0)
    weights = ragged(WEIGHTS, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(weights.flat_values)
        loss = tf.reduce_sum(layer(ragged(BAGS), weights=weights) ** 2)
    of_weights, of_table = tape.gradient(loss, [weights.flat_values, layer.table.embeddings.value])
    table = layer.table.embeddings.numpy()
    combined = (0.5 * table[3] + 2 * table[1] + table[3]) / 3.5
    expected = 2 * combined @ (table[1] - combined) / 3.5
    np.testing.assert_allclose(of_weights[1], expected, rtol=1e-4)
    assert of_weights[3] == 0  # an id that is padding
    assert set(of_table.indices.numpy()) == {1, 3, 5, 11}


def test_without_a_combiner_the_form_of_the_ids_stays():
    layer = Embedding(ROWS, DIM, padding=-1)
    rows = layer(PADDED)
    table = layer.table.embeddings.numpy()
    assert rows.shape == (5, WIDTH, DIM)
    np.testing.assert_array_equal(rows[0, 1], table[1])
    np.testing.assert_array_equal(rows[1], np.zeros((WIDTH, DIM)))
    mean = keras.layers.GlobalAveragePooling1D()(rows)  # of the rows that the mask leaves
    np.testing.assert_allclose(mean[0], (2 * table[3] + table[1]) / 3, rtol=1e-5)
    bags = layer(ragged([[3, -1, 1], []]))
    np.testing.assert_array_equal(bags[0], table[[3, 1]])
    assert bags[1].shape == (0, DIM)
    np.testing.assert_array_equal(layer(tf.constant(4)), table[4])
    masked = layer(tf.maximum(PADDED, 0), mask=PADDED >= 0)
    np.testing.assert_array_equal(masked, rows)
    np.testing.assert_allclose(keras.layers.GlobalAveragePooling1D()(masked), mean, atol=1e-6)
    assert layer(tf.zeros([2, 0], tf.int64)).shape == (2, 0, DIM)


def test_strings_and_integers_are_hashed_alike_everywhere():
    strings = Embedding(1000, DIM, "sum", padding="")
    rows = strings(tf.constant([["red", ""], ["", ""]]))
    # What the hash gave once; checkpoints rely on it.
    np.testing.assert_array_equal(rows[0], strings.table.embeddings.numpy()[910])
    np.testing.assert_array_equal(rows[1], np.zeros(DIM))
    hashed = Embedding(1000, DIM, out_of_range="hash")
    ids = [999, 0, -1, 1000, 2**62 + 1]
    rows = hashed(tf.constant(ids, tf.int64))
    expected = [999, 0, *(splitmix64(i) % 1000 for i in ids[2:])]
    np.testing.assert_array_equal(rows, hashed.table.embeddings.numpy()[expected])


def splitmix64(value):
    mixed = (value + 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def test_ids_out_of_range():
    default = Embedding(ROWS, DIM, "sum", out_of_range="default")
    rows = default(tf.constant([[-7], [ROWS], [2**40], [ROWS - 1]], tf.int64))
    table = default.table.embeddings.numpy()
    assert table.shape == (ROWS + 1, DIM)
    np.testing.assert_array_equal(rows, table[[ROWS, ROWS, ROWS, ROWS - 1]])
    strict = Embedding(ROWS, DIM, "sum", name="strict")
    for bad in (-1, ROWS):
        message = f'id {bad} is outside table "strict/table/embeddings", which has rows 0 to 11'
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            strict(tf.constant([[1, bad]]))


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({"combiner": "max"}, (), "'bad': combiner='max' is not one of None, sum, mean, sqrtn"),
        ({"out_of_range": "clip"}, (), "out_of_range='clip' is not one of error, default, hash"),
        ({}, (tf.zeros([2, 2]),), "'bad': ids are int32, int64 or strings, not float32"),
        ({}, (PADDED, PADDED_WEIGHTS), "'bad': weights need a combiner"),
        ({"combiner": "sum"}, (PADDED[:, 0],), r"needs ids \[batch, n\], not \(5,\)"),
        ({"combiner": "sum"}, (ragged(BAGS), PADDED_WEIGHTS), "both be ragged, or both dense"),
        ({"combiner": "sum"}, (ragged(BAGS), None, PADDED > 0), "ragged ids take no mask"),
        ({"combiner": "sum"}, (ragged([BAGS]),), r"ragged ids have the shape \[batch, \(n\)\]"),
        ({"padding": ""}, (PADDED,), "padding='' cannot stand among ids of dtype int64"),
    ],
)
def test_misuse_is_refused_with_the_layers_name(options, call, message):
    with pytest.raises(UserError, match=message):
        Embedding(ROWS, DIM, name="bad", **options)(*call)


def test_weights_must_be_as_many_as_ids():
    layer = Embedding(ROWS, DIM, "sum", name="bag")
    with pytest.raises(tf.errors.InvalidArgumentError, match="'bag': a record has not as many"):
        layer(ragged([[1], [2, 3]]), weights=ragged([[1.0, 2.0], [3.0]], tf.float32))


def test_a_model_with_such_layers_can_be_saved_and_loaded(tmp_path):
    ids = keras.Input((None,), name="ids", dtype="int64", ragged=True)
    layer = Embedding(ROWS, DIM, "mean", "ones", padding=-1, out_of_range="hash", name="bag")
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded(ragged(BAGS)), model(ragged(BAGS)))
    assert loaded.get_layer("bag").get_config() == layer.get_config()
