"""Keys become hashes, alike in graphs and outside of them, and hashes become keys again."""

import numpy as np
import pytest
import tensorflow as tf

from tfps.store.keyed_layout import hashes_of, hashes_of_array, keys_of_array, salt_of

LEAST, GREATEST = -(2**63), 2**63 - 1
EXTREMES = [LEAST, LEAST + 1, -(2**32), -2, -1, 0, 1, 2, 2**31, 2**53 + 1, GREATEST - 1, GREATEST]
RANDOM = np.random.default_rng(0).integers(LEAST, GREATEST, 10_000, endpoint=True)
KEYS = np.concatenate([np.array(EXTREMES, np.int64), RANDOM])
TABLES = ("users/embeddings", "items/embeddings", "")


@pytest.mark.parametrize("table", TABLES)
def test_a_graph_and_numpy_give_equal_hashes(table):
    hashes = tf.function(hashes_of)(tf.constant(KEYS), tf.constant(salt_of(table), tf.uint64))
    assert hashes.dtype == tf.int64
    np.testing.assert_array_equal(hashes, hashes_of_array(KEYS, salt_of(table)))


@pytest.mark.parametrize("table", TABLES)
def test_every_key_is_found_again_from_its_hash(table):
    hashes = hashes_of_array(KEYS, salt_of(table))
    assert len(np.unique(hashes)) == len(np.unique(KEYS))
    np.testing.assert_array_equal(keys_of_array(hashes, salt_of(table)), KEYS)


def test_every_hash_belongs_to_a_key():
    salt = salt_of(TABLES[0])
    np.testing.assert_array_equal(hashes_of_array(keys_of_array(KEYS, salt), salt), KEYS)


def test_hashes_of_a_matrix_have_its_shape():
    matrix = KEYS[:12].reshape(3, 4)
    np.testing.assert_array_equal(
        hashes_of_array(matrix, 5), hashes_of_array(KEYS, 5)[:12].reshape(3, 4)
    )
    np.testing.assert_array_equal(keys_of_array(hashes_of_array(matrix, 5), 5), matrix)


def test_equal_keys_of_two_tables_have_different_hashes():
    first, second = (hashes_of_array(KEYS, salt_of(table)) for table in TABLES[:2])
    assert not np.intersect1d(first, second).size


def test_hashes_of_small_numbers_are_spread_evenly():
    """Over 64 equal ranges; a fair draw exceeds the bound in one run of 10^9."""
    hashes = hashes_of_array(np.arange(64_000, dtype=np.int64), salt_of(TABLES[0]))
    counts = np.bincount((hashes >> 58) + 32, minlength=64)
    assert ((counts - 1000.0) ** 2 / 1000).sum() < 63 + 6.5 * np.sqrt(2 * 63) + 15


def test_hashes_are_those_that_checkpoints_were_written_with():
    keys = np.array([0, 1, -1, LEAST, GREATEST], np.int64)
    # Of splitmix64 and BLAKE2b, written out in plain Python.
    assert hashes_of_array(keys, salt_of("users/embeddings")).tolist() == [
        -453111294031850190,
        -8049625483985514180,
        7761362995843718342,
        5748814540708407184,
        7033516156871897814,
    ]
