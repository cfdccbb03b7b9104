"""Initializers whose rows are given, or made as a whole."""

import keras
import numpy as np
import pytest

from tests.models import TaskOf, functional
from tfps.errors import UserError
from tfps.layers.rows_of_files import RowsOfIds
from tfps.model import initial_values
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store import initializers
from tfps.store.parameter_store import ParameterStore

ROWS, DIM = 3000, 4
MATRIX = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("f4")


class Ascending(keras.initializers.RandomNormal):
    """Of a class that Keras does not have, and with an order over the whole table."""

    def __call__(self, shape, dtype=None):
        return keras.ops.reshape(keras.ops.arange(np.prod(shape), dtype=dtype), shape)


def table_of(initializer, parts):
    task = TaskOf(functional(rows=ROWS, embeddings_initializer=initializer))
    model = StatelessModel(task, seed=0)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, 0)
    return store.read_table(0)


@pytest.mark.quick("matrix-3")
@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.Constant(MATRIX),
        keras.initializers.Constant(MATRIX[0]),
        keras.initializers.Constant(MATRIX[:, :1]),
        keras.initializers.Constant(0.5),
        keras.initializers.Identity(2.0),
        keras.initializers.Orthogonal(seed=3),
        Ascending(),
        RowsOfIds(lambda ids: MATRIX[ids]),
        lambda shape, dtype=None: keras.ops.cast(MATRIX, dtype),
        MATRIX,
    ],
    ids=[
        "matrix",
        "row",
        "column",
        "number",
        "identity",
        "orthogonal",
        "own class",
        "rows of ids",
        "own function",
        "array",
    ],
)
def test_a_table_starts_as_keras_fills_it(initializer, parts, monkeypatch):
    monkeypatch.setattr(initializers, "CHUNK_BYTES", 1000)  # several writes for each ps
    expected = keras.initializers.get(initializer)((ROWS, DIM), dtype="float32")
    np.testing.assert_array_equal(table_of(initializer, parts), expected)


def test_whole_tables_of_a_group_leave_the_others_rows_alone():
    def build():
        layers = [
            keras.layers.Embedding(500, DIM, embeddings_initializer=each, name=name)
            for name, each in (("drawn", "uniform"), ("made", "orthogonal"), ("one", "ones"))
        ]
        id_in = keras.Input((), name="id", dtype="int64")
        x = keras.Input((3,), name="x")
        rows = [layer(id_in) for layer in layers]
        return keras.Model([id_in, x], keras.layers.Dense(1)(keras.layers.Concatenate()(rows)))

    task = TaskOf(build)
    model = StatelessModel(task, seed=0)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * 2, 0)
    drawn, made, one = (store.read_table(k) for k in range(3))
    assert (len(np.unique(drawn)) > 1900, drawn.max() <= 0.05) == (True, True)
    np.testing.assert_allclose(made.T @ made, np.eye(DIM), atol=1e-5)
    np.testing.assert_array_equal(one, 1)


@pytest.mark.parametrize(
    ("initializer", "message"),
    [
        (keras.initializers.Constant(MATRIX[:7]), "Constant cannot give rows of 3000 times 4"),
        (RowsOfIds(lambda ids: MATRIX[0]), r"shape \[4\] for 1 ids; it must give \[1, 4\]"),
        (RowsOfIds(lambda ids: 1 / 0), "RowsOfIds cannot give .* division by zero"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_a_store_is_made(initializer, message):
    with pytest.raises(UserError, match=f"table/embeddings.*{message}"):
        StatelessModel(TaskOf(functional(rows=ROWS, embeddings_initializer=initializer)), seed=0)


@pytest.mark.quick("identity")
@pytest.mark.parametrize("initializer", ["orthogonal", "identity", Ascending()])
def test_a_whole_table_that_is_too_large_is_refused_by_name(initializer, monkeypatch):
    monkeypatch.setattr(initial_values, "LARGEST_WHOLE", 4 * ROWS * DIM - 1)
    with pytest.raises(UserError, match=r"table/embeddings.*(Orthogonal|Identity|Ascending).*Row"):
        StatelessModel(TaskOf(functional(rows=ROWS, embeddings_initializer=initializer)), seed=0)
