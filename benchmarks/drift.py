"""Clicks whose reasons drift, and the config of the model that `benchmarks.online` trains."""

import math
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

import tfps

USERS, ITEMS, BATCH = 3000, 1000, 500
UNSEEN = 1500  # items without a click, for `benchmarks.endless`
RATE = 0.15  # of items
SLOWER = 0.6  # of what users' rows are times: they learn at its square of the rate
PERIOD = 60  # datasets in which what items are worth goes round once
SPREAD_OF_USERS, HEIGHT_OF_ITEMS = 0.7, 1.5
BIAS = -1.0
MEMORY = 27  # datasets in which a `Filter` forgets: best of 8, 12, 18, 27 and 40
FEATURES = (
    tfps.Feature("user", "int64", vocabulary=USERS),
    tfps.Feature("item", "int64", vocabulary=ITEMS + UNSEEN),
)
LABEL = tfps.Feature("clicked", "float32")
Chances = npt.NDArray[np.float64]


def chances(user: npt.NDArray[Any], item: npt.NDArray[Any], moment: float) -> Chances:
    """The probability of a click, `[count]`: what users like stays, what items are worth moves."""
    draw = np.random.default_rng(3)
    of_users = draw.normal(0.0, SPREAD_OF_USERS, USERS)
    height = draw.normal(0.0, HEIGHT_OF_ITEMS, ITEMS)
    phase = draw.uniform(0.0, 2 * np.pi, ITEMS)
    worth = height * np.cos(2 * np.pi * moment / PERIOD + phase)
    return 1 / (1 + np.exp(-BIAS - of_users[user] - worth[item]))


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
            logits = SLOWER * self._of_users[user] + self._of_items[item]
            predicted[batch] = 1 / (1 + np.exp(-logits))
            steps = RATE * (columns["clicked"][batch] - predicted[batch])
            np.add.at(self._of_users, user, SLOWER * steps)
            np.add.at(self._of_items, item, steps)
        return predicted


class Filter:
    """A learner that is given what it can only guess: the spread of users and of items, the bias.

    An extended Kalman filter, record by record, with a mean and a variance of each id's worth. An
    item's worth decays and is drawn again, at the speed that predicts these clicks best.
    """

    def __init__(self) -> None:
        self._users = [0.0] * USERS, [SPREAD_OF_USERS**2] * USERS
        self._spread = HEIGHT_OF_ITEMS**2 / 2  # the cosine's mean square is a half
        self._items = [0.0] * ITEMS, [self._spread] * ITEMS

    def learn(self, columns: dict[str, npt.NDArray[Any]]) -> Chances:
        """What it predicts of each record before it learns the record."""
        records = zip(columns["user"], columns["item"], columns["clicked"], strict=True)
        predicted = np.asarray([self._learn(*record) for record in records])
        self._wait()
        return predicted

    def _learn(self, user: int, item: int, clicked: float) -> float:
        ids = (self._users, user), (self._items, item)
        logit = BIAS + sum(mean[place] for (mean, _), place in ids)
        unsure = sum(variance[place] for (_, variance), place in ids)
        chance = 1 / (1 + math.exp(-logit))
        slope = chance * (1 - chance)
        for (mean, variance), place in ids:
            gain = variance[place] / (1 + unsure * slope)
            mean[place] += gain * (clicked - chance)
            variance[place] -= gain * slope * variance[place]
        # The mean of the chances of what is unsure (MacKay 1992, "The evidence framework").
        return 1 / (1 + math.exp(-logit / math.sqrt(1 + math.pi * unsure / 8)))

    def _wait(self) -> None:
        """Between two datasets."""
        kept = math.exp(-1 / MEMORY)
        mean, variance = self._items
        mean[:] = [kept * each for each in mean]
        variance[:] = [self._spread + kept**2 * (each - self._spread) for each in variance]


def build() -> keras.Model:
    """A logistic regression on both ids; the rows of what moves learn faster."""
    user, item = (keras.Input((), name=each.name, dtype="int64") for each in FEATURES)
    of_user = keras.layers.Embedding(USERS, 1, "zeros", name="of_users")(user)
    of_item = keras.layers.Embedding(ITEMS + UNSEEN, 1, "zeros", name="of_items")(item)
    logits = keras.layers.Add()([keras.layers.Rescaling(SLOWER)(of_user), of_item])
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
