"""A recommender of ids that are mostly rare, and its config: `benchmarks.fidelity` trains it."""

from collections.abc import Callable

import keras

import tfps
from benchmarks.planted import ITEMS, USERS

FEATURES = (
    tfps.Feature("user", "int64", vocabulary=USERS),
    tfps.Feature("item", "int64", vocabulary=ITEMS),
)
LABEL = tfps.Feature("liked", "float32")
DIM = 16


def build() -> keras.Model:
    """Neural matrix factorization with Adam, as keras.io's and its readers' examples have it."""
    user, item = (keras.Input((), name=each.name, dtype="int64") for each in FEATURES)
    both = factorized(user, item, lambda ids, name: keras.layers.Embedding(ids, DIM, name=name))
    model = keras.Model([user, item], keras.layers.Dense(1, activation="sigmoid")(both))
    model.compile(keras.optimizers.Adam(0.002), "binary_crossentropy")
    return model


def factorized(
    user: keras.KerasTensor,
    item: keras.KerasTensor,
    table: Callable[[int, str], keras.layers.Layer],
) -> keras.KerasTensor:
    """What the last layer is given, `[batch, units]`.

    Args:
        user: Ids, `[batch]`.
        item: Ids, `[batch]`.
        table: Given how many ids there are and a name, the layer that looks them up.
    """

    def rows(kind: str) -> list[keras.KerasTensor]:
        return [table(USERS, f"user_{kind}")(user), table(ITEMS, f"item_{kind}")(item)]

    product = keras.layers.Multiply()(rows("factors"))
    hidden = keras.layers.Concatenate()(rows("deep"))
    for units in (32, 16):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    return keras.layers.Concatenate()([product, hidden])


def get_config() -> tfps.Experiment:
    """Three passes in batches of 256."""
    task = tfps.task_of(build, LABEL, FEATURES)
    return tfps.Experiment("rare_ids", task, train=tfps.Train(batch_size=256, epochs=3))
