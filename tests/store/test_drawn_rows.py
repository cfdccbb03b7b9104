"""Rows that each ps draws of tables of one group."""

from collections.abc import Sequence

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps.experiment.task import Table
from tfps.store.group_layout import GroupLayout
from tfps.store.initializers import draw_rows

ROWS, DIM = 4000, 8
INITIALIZERS = (
    keras.initializers.RandomUniform(-0.1, 0.3, seed=1),
    keras.initializers.RandomNormal(0.2, 0.1, seed=1),
    keras.initializers.TruncatedNormal(-0.1, 0.2, seed=1),
    keras.initializers.GlorotUniform(seed=1),
    keras.initializers.HeNormal(seed=1),
    keras.initializers.VarianceScaling(2.0, "fan_avg", "untruncated_normal", seed=1),
    keras.initializers.Zeros(),
    keras.initializers.Ones(),
    keras.initializers.Constant(0.4),
)


def drawn(
    initializers: Sequence[keras.initializers.Initializer], parts: int = 1, seed: int = 3
) -> list[np.ndarray]:
    """The rows that the ps of one group draw for a table with each initializer."""
    tables = [Table(f"t{n}", ROWS, DIM, each) for n, each in enumerate(initializers)]
    layout = GroupLayout(tuple(tables), parts)
    rows = np.full([layout.total_rows, DIM], np.nan, np.float32)
    for part in range(parts):
        first, end = layout.bounds(part)
        held = tf.Variable(rows[first:end])

        def write(numbers: tf.Tensor, values: tf.Tensor, held: tf.Variable = held) -> None:
            held.scatter_update(tf.IndexedSlices(values, numbers))

        draw_rows(layout, part, seed, write)
        rows[first:end] = held.numpy()
    return [rows[layout.rows_of(number)] for number in range(len(tables))]


@pytest.mark.parametrize("initializer", INITIALIZERS, ids=lambda each: type(each).__name__)
def test_rows_have_the_distribution_of_their_initializer(
    initializer: keras.initializers.Initializer,
) -> None:
    [rows] = drawn([initializer])
    expected = np.asarray(initializer((ROWS, DIM)))
    spread = float(expected.std())
    assert rows.std() == pytest.approx(spread, rel=0.05)
    assert rows.mean() == pytest.approx(expected.mean(), abs=0.03 * spread + 1e-7)
    quantiles = np.linspace(0, 1, 21)[1:-1]
    np.testing.assert_allclose(
        np.quantile(rows, quantiles), np.quantile(expected, quantiles), atol=0.05 * spread + 1e-7
    )
    if np.ptp(expected):
        assert len(np.unique(rows[:, 0])) > 0.97 * ROWS
        assert not np.array_equal(rows, drawn([initializer], seed=4)[0])


def test_a_table_is_drawn_the_same_whatever_the_others_draw() -> None:
    on_one, on_three = (drawn(INITIALIZERS, parts) for parts in (1, 3))
    for number, initializer in enumerate(INITIALIZERS):
        alike = drawn([initializer] * len(INITIALIZERS))
        np.testing.assert_array_equal(on_one[number], alike[number])
        np.testing.assert_array_equal(on_three[number], alike[number])


def test_rows_of_another_kind_of_initializer_are_left_to_the_chief() -> None:
    def whole(shape: Sequence[int], dtype: str) -> np.ndarray:
        raise AssertionError

    rows, more, ones = drawn([keras.initializers.Orthogonal(), whole, keras.initializers.Ones()])
    assert not rows.any()
    assert not more.any()
    assert (ones == 1).all()
