"""The models of the benchmarks, for Keras 3 and for tf_keras; nothing of tfps is needed."""

from collections.abc import Callable
from typing import Any

import numpy as np

INTEGERS = 13
CATEGORICALS = 26
DIM = 16
LEARNING_RATES = {  # of Adagrad
    "embeddings_mlp": 0.05,
    "dlrm": 0.02,
    "wide_and_deep": 0.05,
    "dense_100": 0.001,
}
OPTIMIZERS = ("adagrad", "adam")
ADAM_RATE = 0.001
DENSE_NUMBERS = 32
DENSE_LAYERS = 100

# Ids of each categorical in the Kaggle display advertising challenge, 33,762,577 in all.
KAGGLE_IDS = (
    *(1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194),
    *(27, 14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)
# The layers of Naumov et al., Deep Learning Recommendation Model (2019), for that data.
_BOTTOM, _TOP = (512, 256, 64, DIM), (512, 256)
_PAIRS = (1 + CATEGORICALS) * CATEGORICALS // 2

# The widths of each chain of dense layers, what comes in first.
CHAINS = {
    "embeddings_mlp": ((CATEGORICALS * DIM + INTEGERS, 128, 64, 1),),
    "dlrm": ((INTEGERS, *_BOTTOM), (DIM + _PAIRS, *_TOP, 1)),
}

# Features of a record by name: shape and dtype.
_CRITEO = {"integers": ((INTEGERS,), "float32"), "categoricals": ((CATEGORICALS,), "int64")}
FEATURES = {
    "embeddings_mlp": _CRITEO,
    "dlrm": _CRITEO,
    "wide_and_deep": _CRITEO,
    "dense_100": {"numbers": ((DENSE_NUMBERS,), "float32")},
}


def build(keras: Any, name: str, rows: int) -> Any:
    """A model that takes a dict of features and gives logits `[batch, 1]`.

    Args:
        keras: The module `keras` or `tf_keras`.
        name: Of the model.
        rows: Of each of its tables; see `table_rows`.
    """
    made = {
        "embeddings_mlp": embeddings_mlp,
        "dlrm": dlrm,
        "wide_and_deep": wide_and_deep,
        "dense_100": dense_100,
    }
    return made[name](keras, rows)


def optimizer(keras: Any, name: str, adagrad_rate: float) -> Any:
    """The optimizer of all parameters: a name in `OPTIMIZERS`."""
    if name == "adam":
        return keras.optimizers.Adam(ADAM_RATE)
    return keras.optimizers.Adagrad(adagrad_rate)


def table_rows(name: str, rows: int) -> tuple[int, ...]:
    """Rows of each of a model's 26 tables: `rows`, of the dlrm at most as many as there are ids."""
    return tuple(min(ids, rows) if name == "dlrm" else rows for ids in KAGGLE_IDS)


def row_numbers(name: str, rows: int, is_fused: bool) -> Callable[[np.ndarray], np.ndarray]:
    """What gives the rows of ids `[n, 26]`: of each table, or of one with the rows of all."""
    sizes = np.array(table_rows(name, rows))
    first = np.cumsum(sizes) - sizes if is_fused else 0
    if name == "dlrm":
        return lambda ids: ids % sizes + first
    return lambda ids: ids + first


def inputs(keras: Any, name: str) -> dict[str, Any]:
    """The model's inputs by feature name."""
    return {
        feature: keras.Input(shape, name=feature, dtype=dtype)
        for feature, (shape, dtype) in FEATURES[name].items()
    }


def dlrm(keras: Any, rows: int, table: Callable[[int], Any] | None = None) -> Any:
    """The DLRM of Naumov et al.: dot products of 26 embeddings and of what an MLP makes of numbers.

    Ids are hashed into tables of `table_rows` rows; `table` makes one, Keras's where it is None.
    """
    given = inputs(keras, "dlrm")
    table = table or (lambda size: keras.layers.Embedding(size, DIM))
    vectors = [
        table(size)(given["categoricals"][:, index] % size)
        for index, size in enumerate(table_rows("dlrm", rows))
    ]
    bottom = _hidden(keras, given["integers"], _BOTTOM)
    rows_of = [keras.layers.Reshape((1, DIM))(each) for each in (bottom, *vectors)]
    stacked = keras.layers.Concatenate(axis=1)(rows_of)
    hidden = keras.layers.Concatenate()([bottom, _dots_layer(keras)(stacked)])
    return keras.Model(given, _mlp(keras, hidden, _TOP))


def embeddings_mlp(keras: Any, rows: int) -> Any:
    """The model of configs/criteo.py: an MLP 128-64-1 over 26 embeddings and 13 numbers."""
    given = inputs(keras, "embeddings_mlp")
    embeddings = [
        keras.layers.Embedding(rows, DIM)(given["categoricals"][:, index])
        for index in range(CATEGORICALS)
    ]
    hidden = keras.layers.Concatenate()([*embeddings, given["integers"]])
    return keras.Model(given, _mlp(keras, hidden, (128, 64)))


def wide_and_deep(keras: Any, rows: int) -> Any:
    """The `embeddings_mlp` with a weight per id of 26 more tables, added to the logit."""
    given = inputs(keras, "wide_and_deep")
    ids = [given["categoricals"][:, index] for index in range(CATEGORICALS)]
    embeddings = [keras.layers.Embedding(rows, DIM)(each) for each in ids]
    hidden = keras.layers.Concatenate()([*embeddings, given["integers"]])
    wide = [keras.layers.Embedding(rows, 1, embeddings_initializer="zeros")(each) for each in ids]
    return keras.Model(given, keras.layers.Add()([_mlp(keras, hidden, (256, 128, 64)), *wide]))


def dense_100(keras: Any, rows: int) -> Any:
    """100 layers of 32 units, each added to what it is given: 202 small variables, no tables."""
    given = inputs(keras, "dense_100")
    hidden = given["numbers"]
    for _ in range(DENSE_LAYERS):
        changed = keras.layers.Dense(DENSE_NUMBERS, activation="tanh", kernel_initializer="zeros")(
            hidden
        )
        hidden = keras.layers.Add()([hidden, changed])
    return keras.Model(given, keras.layers.Dense(1)(hidden))


def _mlp(keras: Any, hidden: Any, units: tuple[int, ...]) -> Any:
    return keras.layers.Dense(1)(_hidden(keras, hidden, units))


def _hidden(keras: Any, hidden: Any, units: tuple[int, ...]) -> Any:
    for width in units:
        hidden = keras.layers.Dense(width, activation="relu")(hidden)
    return hidden


def _dots_layer(keras: Any) -> Any:
    """Dot products `[batch, n (n - 1) / 2]` of n different vectors `[batch, n, dim]`."""
    import tensorflow as tf

    count = 1 + CATEGORICALS
    chosen = [count * first + second for first in range(count) for second in range(first)]

    class Dots(keras.layers.Layer):  # type: ignore[misc]
        def call(self, vectors: Any) -> Any:
            dots = tf.matmul(vectors, vectors, transpose_b=True)
            return tf.gather(tf.reshape(dots, [-1, count * count]), chosen, axis=1)

        def compute_output_shape(self, shape: Any) -> Any:
            return (shape[0], len(chosen))

    return Dots()
