"""The models of the benchmarks, for Keras 3 and for tf_keras; nothing of tfps is needed."""

from typing import Any

INTEGERS = 13
CATEGORICALS = 26
DIM = 16
LEARNING_RATES = {"dlrm": 0.05, "wide_and_deep": 0.05, "dense_100": 0.001}  # of Adagrad
DENSE_NUMBERS = 32
DENSE_LAYERS = 100

# Features of a record by name: shape and dtype.
_CRITEO = {"integers": ((INTEGERS,), "float32"), "categoricals": ((CATEGORICALS,), "int64")}
FEATURES = {
    "dlrm": _CRITEO,
    "wide_and_deep": _CRITEO,
    "dense_100": {"numbers": ((DENSE_NUMBERS,), "float32")},
}


def build(keras: Any, name: str, rows: int) -> Any:
    """A model that takes a dict of features and gives logits `[batch, 1]`.

    Args:
        keras: The module `keras` or `tf_keras`.
        name: Of the model.
        rows: Of each of its tables.
    """
    return {"dlrm": dlrm, "wide_and_deep": wide_and_deep, "dense_100": dense_100}[name](keras, rows)


def inputs(keras: Any, name: str) -> dict[str, Any]:
    """The model's inputs by feature name."""
    return {
        feature: keras.Input(shape, name=feature, dtype=dtype)
        for feature, (shape, dtype) in FEATURES[name].items()
    }


def dlrm(keras: Any, rows: int) -> Any:
    """The model of configs/criteo.py: an MLP 128-64-1 over 26 embeddings and 13 numbers."""
    given = inputs(keras, "dlrm")
    embeddings = [
        keras.layers.Embedding(rows, DIM)(given["categoricals"][:, index])
        for index in range(CATEGORICALS)
    ]
    hidden = keras.layers.Concatenate()([*embeddings, given["integers"]])
    return keras.Model(given, _mlp(keras, hidden, (128, 64)))


def wide_and_deep(keras: Any, rows: int) -> Any:
    """The DLRM with a weight per id of 26 more tables, added to the logit."""
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
    for width in units:
        hidden = keras.layers.Dense(width, activation="relu")(hidden)
    return keras.layers.Dense(1)(hidden)
