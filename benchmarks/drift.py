"""Clicks whose reasons drift, and the config of the model that `benchmarks.online` trains."""

from typing import Any

import keras
import numpy as np
import numpy.typing as npt

import tfps

USERS, ITEMS, BATCH, RATE = 3000, 1000, 500, 0.1
PERIOD = 60  # datasets in which what items are worth goes round once
FEATURES = (
    tfps.Feature("user", "int64", vocabulary=USERS),
    tfps.Feature("item", "int64", vocabulary=ITEMS),
)
LABEL = tfps.Feature("clicked", "float32")
Chances = npt.NDArray[np.float64]


def chances(user: npt.NDArray[Any], item: npt.NDArray[Any], moment: float) -> Chances:
    """The probability of a click, `[count]`: what users like stays, what items are worth moves."""
    draw = np.random.default_rng(3)
    of_users, height = draw.normal(0.0, 0.7, USERS), draw.normal(0.0, 1.5, ITEMS)
    phase = draw.uniform(0.0, 2 * np.pi, ITEMS)
    worth = height * np.cos(2 * np.pi * moment / PERIOD + phase)
    return 1 / (1 + np.exp(1.0 - of_users[user] - worth[item]))


def clicks(number: int, count: int) -> tuple[dict[str, npt.NDArray[Any]], Chances]:
    """The records of a dataset, counted from 0, and the probability of each one's click."""
    draw = np.random.default_rng([number, 5])
    user, item = (draw.integers(0, ids, count) for ids in (USERS, ITEMS))
    truth = chances(user, item, number)
    clicked = (draw.random(count) < truth).astype(np.float32)
    return {"user": user, "item": item, "clicked": clicked}, truth


class InOrder:
    """The same model by the same updates in NumPy, one batch after the other."""

    def __init__(self) -> None:
        self._of_users, self._of_items = np.zeros(USERS), np.zeros(ITEMS)

    def learn(self, columns: dict[str, npt.NDArray[Any]]) -> Chances:
        """What it predicts of each record before it learns the record's batch."""
        predicted = np.empty(len(columns["clicked"]))
        for first in range(0, len(predicted), BATCH):
            batch = slice(first, first + BATCH)
            user, item = columns["user"][batch], columns["item"][batch]
            predicted[batch] = 1 / (1 + np.exp(-self._of_users[user] - self._of_items[item]))
            steps = RATE * (columns["clicked"][batch] - predicted[batch])
            np.add.at(self._of_users, user, steps)
            np.add.at(self._of_items, item, steps)
        return predicted


def build() -> keras.Model:
    """A logistic regression on both ids."""
    user, item = (keras.Input((), name=each.name, dtype="int64") for each in FEATURES)
    logits = keras.layers.Add()(
        [
            keras.layers.Embedding(USERS, 1, "zeros", name="of_users")(user),
            keras.layers.Embedding(ITEMS, 1, "zeros", name="of_items")(item),
        ]
    )
    model = keras.Model([user, item], keras.layers.Activation("sigmoid")(logits))
    # A constant rate, which never stops to learn: a step of SGD is as long after a year. The loss
    # is the mean of a batch, in which an id occurs about once.
    model.compile(keras.optimizers.SGD(RATE * BATCH), "binary_crossentropy")
    return model


def get_config() -> tfps.Experiment:
    """Records in the order in which they come."""
    task = tfps.task_of(build, LABEL, FEATURES)
    data, train = tfps.Data(shuffle_buffer=0), tfps.Train(batch_size=BATCH)
    return tfps.Experiment("online", task, data, train)
