"""Initial rows of keys: what an initializer draws, and of each key always the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.store.keyed.groups import Keyed
from tfps.experiment.task import Table
from tfps.layers.dynamic_embedding import MEAN, ZEROS, KeyOptions
from tfps.store.initializers import InitialRows, mean_of, unknown_rows
from tfps.store.keyed_layout import hashes_of_array, keys_of_array, salt_of

DIM = 8
initializers = keras.initializers
DRAWN = {
    "uniform": initializers.RandomUniform(-0.25, 0.75),
    "normal": initializers.RandomNormal(0.5, 2.0),
    "truncated": initializers.TruncatedNormal(-1.0, 0.5),
}


def table(initializer, name="t", unknown=ZEROS):
    return Table(name, 100, DIM, initializer, keys=KeyOptions(100, unknown=unknown))


def drawn(initializer, hashes, seed=3):
    hashes = tf.constant(hashes, tf.int64)
    return (
        InitialRows([table(initializer)], seed)
        .draw(hashes, tf.zeros_like(hashes, tf.int32))
        .numpy()
    )


def hashes(count):
    return hashes_of_array(np.arange(count, dtype=np.int64), salt_of("t"))


@pytest.mark.parametrize("name", DRAWN)
def test_rows_are_distributed_as_those_of_keras(name):
    """By quantiles of 160,000 values each; they miss the bound in one run of a million."""
    rows = drawn(DRAWN[name], hashes(20_000))
    of_keras = DRAWN[name]((20_000, DIM)).numpy()
    assert rows.dtype == np.float32
    assert rows.shape == of_keras.shape
    scale = of_keras.std()
    quantiles = np.linspace(0.02, 0.98, 25)
    found, expected = (np.quantile(values, quantiles) for values in (rows, of_keras))
    np.testing.assert_allclose(found, expected, atol=0.03 * scale)
    assert abs(rows.mean() - mean_of(DRAWN[name])) < 5 * scale / np.sqrt(rows.size)
    for axis in (0, 1):  # neither columns nor rows go together
        corr = np.corrcoef(rows[:200], rowvar=bool(axis))
        others = corr[~np.eye(len(corr), dtype=bool)]
        assert abs(others.mean()) < 0.02
    if name != "normal":
        assert of_keras.min() - 0.01 <= rows.min()
        assert rows.max() <= of_keras.max() + 0.01


@pytest.mark.parametrize(
    ("initializer", "value"),
    [
        (initializers.Zeros(), 0.0),
        (initializers.Ones(), 1.0),
        (initializers.Constant(-2.5), -2.5),
    ],
)
def test_rows_without_chance(initializer, value):
    np.testing.assert_array_equal(drawn(initializer, hashes(5)), np.full((5, DIM), value, "f4"))
    assert mean_of(initializer) == value


@pytest.mark.parametrize("name", DRAWN)
def test_no_value_is_infinite_whatever_the_hash(name):
    """Of hashes whose first value is drawn from the greatest and the least 64 bits."""
    seed, golden, odd = 3, 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
    for bits in (np.array([-1, 0, -(2**40), 2**40 - 1, -(2**63), 2**63 - 1], np.int64),):
        state = keys_of_array(bits, 0).view(np.uint64)
        extreme = (state - np.uint64(odd)) ^ np.uint64(seed * golden % 2**64)
        rows = drawn(DRAWN[name], extreme.view(np.int64), seed)
        assert np.isfinite(rows).all(), rows[:, 0]
        # The bits are those of the first value: its greatest is the greatest there is.
        others = drawn(DRAWN[name], hashes(50_000), seed)
        assert rows[0, 0] >= others.max()
        assert rows[1, 0] <= others.min()


@pytest.mark.parametrize("name", DRAWN)
def test_rows_are_the_same_to_the_last_bit_however_many_are_drawn_at_once(name):
    """Of three values, which are no whole number of a processor's registers."""
    initial = InitialRows([Table("t", 100, 3, DRAWN[name], keys=KeyOptions(100))], 3)

    def draw(some):
        return initial.draw(tf.constant(some), tf.zeros([len(some)], tf.int32)).numpy()

    asked = hashes(1000)
    rows = draw(asked)
    for count in [*range(1, 35), 63, 64, 65, 127, 500]:
        np.testing.assert_array_equal(draw(asked[:count]), rows[:count])
        np.testing.assert_array_equal(draw(asked[-count:]), rows[-count:])


def test_other_seeds_and_other_tables_have_other_rows():
    uniform = DRAWN["uniform"]
    first = drawn(uniform, hashes(100), seed=3)
    np.testing.assert_array_equal(first, drawn(uniform, hashes(100), seed=3))
    for other in (drawn(uniform, hashes(100), seed=4), drawn(uniform, hashes(100), seed=0)):
        assert (first != other).mean() > 0.99
    other_table = hashes_of_array(np.arange(100, dtype=np.int64), salt_of("u"))
    assert (first != drawn(uniform, other_table)).mean() > 0.99


def test_tables_of_one_group_may_have_different_initializers():
    tables = [
        table(initializers.Constant(2.0), "a"),
        table(DRAWN["uniform"], "b"),
        table(initializers.Zeros(), "c"),
        table(initializers.RandomUniform(-0.25, 0.75, seed=99), "d"),
    ]
    asked = np.repeat(hashes(5), 4)
    which = tf.constant([0, 1, 2, 3] * 5, tf.int32)
    rows = InitialRows(tables, 3).draw(tf.constant(asked), which).numpy()
    np.testing.assert_array_equal(rows[0::4], np.full((5, DIM), 2.0))
    np.testing.assert_array_equal(rows[1::4], drawn(DRAWN["uniform"], hashes(5)))
    np.testing.assert_array_equal(rows[2::4], np.zeros((5, DIM)))
    # What Keras's initializer is seeded with says nothing of a key: the run's seed does.
    np.testing.assert_array_equal(rows[3::4], rows[1::4])


def test_rows_of_unknown_keys():
    uniform = DRAWN["uniform"]
    tables = [
        table(uniform, "a", MEAN),
        table(uniform, "b", ZEROS),
        table(DRAWN["normal"], "c", MEAN),
    ]
    np.testing.assert_array_equal(unknown_rows(tables), np.repeat([[0.25], [0.0], [0.5]], DIM, 1))


@pytest.mark.slow
def test_rows_are_the_same_on_any_number_of_ps_and_in_any_order():
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 300)
    found = []
    for parts in (1, 2, 5):
        order = np.random.default_rng(parts).permutation(len(keys))
        keyed = Keyed(parts, ("a", "b"), initializer=DRAWN["normal"], max_rows=2_000)
        rows = np.zeros((2, len(keys), keyed.dim), "f4")
        for some in np.array_split(order, parts + 1):
            rows[:, some] = keyed.pull(keys[some], keys[some]).rows
        found.append(rows)
        assert (rows[0] != rows[1]).all()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
