"""A recommender of ids that are mostly rare, and its config: `benchmarks.fidelity` trains it."""

import keras

import tfps
from benchmarks.planted import ITEMS, USERS

FEATURES = (
    tfps.Feature("user", "int64", vocabulary=USERS),
    tfps.Feature("item", "int64", vocabulary=ITEMS),
)
LABEL = tfps.Feature("liked", "float32")
_DIM = 16


def build() -> keras.Model:
    """Neural matrix factorization with Adam, as keras.io's and its readers' examples have it."""
    user, item = (keras.Input((), name=each.name, dtype="int64") for each in FEATURES)

    def rows(kind: str) -> list[keras.KerasTensor]:
        return [
            keras.layers.Embedding(USERS, _DIM, name=f"user_{kind}")(user),
            keras.layers.Embedding(ITEMS, _DIM, name=f"item_{kind}")(item),
        ]

    product = keras.layers.Multiply()(rows("factors"))
    hidden = keras.layers.Concatenate()(rows("deep"))
    for units in (32, 16):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    both = keras.layers.Concatenate()([product, hidden])
    model = keras.Model([user, item], keras.layers.Dense(1, activation="sigmoid")(both))
    model.compile(keras.optimizers.Adam(0.002), "binary_crossentropy")
    return model


def get_config() -> tfps.Experiment:
    """Three passes in batches of 256."""
    task = tfps.task_of(build, LABEL, FEATURES)
    return tfps.Experiment("rare_ids", task, train=tfps.Train(batch_size=256, epochs=3))
