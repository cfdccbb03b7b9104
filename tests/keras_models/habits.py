"""Habits that models of others have: names with signs in them, layers that measure and punish."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tests.keras_models.case import YES_OR_NO, Case, inputs_of
from tests.keras_models.signals import ids, noisy, numbers, truth, yes_or_no
from tfps.data.feature import Feature

_KIND = "several tasks"
_GENRES = ("drama", "sci-fi & fantasy", "film noir", "comédie")
_VISIT = (
    Feature("user-id", "int64", (), 60),
    Feature("movie genre", "string"),
    Feature("price (EUR)", "float32", (3,)),
)
_CLICK, _RATING = Feature("clicked-on", "int64", (), YES_OR_NO), Feature("rating: 0…1", "float32")


def _visits(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    user, genre = ids(generator, count, 60), ids(generator, count, len(_GENRES))
    price = numbers(generator, count, 3)
    score = truth("users", 60)[user] + 2.0 * truth("genres", 4)[genre] + price @ truth("price", 3)
    return {
        "user-id": user,
        "movie genre": np.array(_GENRES, object)[genre],
        "price (EUR)": price,
        _CLICK.name: yes_or_no(generator, score),
        _RATING.name: noisy(generator, 0.2 * score, 0.1),
    }


class Watched(keras.layers.Layer):
    """Measures how large its inputs are, and adds a part of it to the loss."""

    def __init__(self, factor: float):
        super().__init__(name="watched")
        self.factor = factor
        self.size = keras.metrics.Mean(name="size")

    def call(self, inputs: Any) -> Any:
        size = ops.mean(ops.square(inputs))
        self.size.update_state(size)
        self.add_loss(self.factor * size)
        return inputs


def _hidden(inputs: dict[str, Any]) -> Any:
    genre = keras.layers.StringLookup(vocabulary=list(_GENRES))(inputs["movie genre"])
    rows = [
        keras.layers.Embedding(60, 8, name="user-rows")(inputs["user-id"]),
        keras.layers.Embedding(len(_GENRES) + 1, 4)(genre),
    ]
    hidden = keras.layers.Concatenate()([*rows, inputs["price (EUR)"]])
    return keras.layers.Dense(16, activation="relu")(Watched(0.01)(hidden))


def _awkward_names() -> keras.Model:
    inputs = inputs_of(_VISIT)
    chance = keras.layers.Dense(1, activation="sigmoid", name="chance")(_hidden(inputs))
    model = keras.Model(inputs, chance)
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["auc"])
    return model


def _weighted_outputs() -> keras.Model:
    inputs = inputs_of(_VISIT)
    hidden = _hidden(inputs)
    chance = keras.layers.Dense(1, activation="sigmoid", name="chance")(hidden)
    rating = keras.layers.Dense(1, name="rating")(hidden)
    model = keras.Model(list(inputs.values()), [chance, rating])
    model.compile(
        keras.optimizers.Adam(0.01),
        loss=["binary_crossentropy", "mse"],
        loss_weights=[0.3, 2.0],
        metrics=[["accuracy"], [keras.metrics.MeanAbsoluteError(name="off by")]],
    )
    return model


CASES = (
    Case("awkward_names", "structured data", _VISIT, _CLICK, _visits, _awkward_names, epochs=4),
    Case("weighted_outputs", _KIND, _VISIT, (_CLICK, _RATING), _visits, _weighted_outputs),
)
