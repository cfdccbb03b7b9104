"""Models that learn several labels at once."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tests.keras_models.case import DRAWN, YES_OR_NO, Case, inputs_of
from tests.keras_models.layers import mlp
from tests.keras_models.signals import ids, noisy, numbers, truth, yes_or_no
from tfps.data.feature import Feature

_KIND = "several tasks"

_CITIZEN = (
    Feature("job", "int64", (), 60),
    Feature("region", "int64", (), 40),
    Feature("figures", "float32", (6,)),
)


def _citizens(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    job, region, figures = (
        ids(generator, count, 60),
        ids(generator, count, 40),
        numbers(generator, count, 6),
    )
    shared = figures @ truth("figures", 6) + truth("jobs", 60)[job]
    return {
        "job": job,
        "region": region,
        "figures": figures,
        "earns": yes_or_no(generator, shared + truth("regions", 40)[region]),
        "married": yes_or_no(generator, 2.0 * figures[:, 0] - shared),
    }


class Experts(keras.layers.Layer):
    """Networks of which every task has a mixture of its own, as its gate says."""

    def __init__(self, experts: int, units: int, tasks: int):
        super().__init__()
        self.experts = [keras.layers.Dense(units, activation="relu") for _ in range(experts)]
        self.gates = [keras.layers.Dense(experts, activation="softmax") for _ in range(tasks)]

    def call(self, inputs: Any) -> list[Any]:
        outputs = ops.stack([expert(inputs) for expert in self.experts], axis=1)
        return [ops.sum(outputs * gate(inputs)[..., None], axis=1) for gate in self.gates]


def _mixture_of_experts() -> keras.Model:
    inputs = inputs_of(_CITIZEN)
    rows = [
        keras.layers.Embedding(60, 8)(inputs["job"]),
        keras.layers.Embedding(40, 8)(inputs["region"]),
    ]
    mixed = Experts(experts=4, units=16, tasks=2)(
        keras.layers.Concatenate()([*rows, inputs["figures"]])
    )
    outputs = {
        name: keras.layers.Dense(1, activation="sigmoid", name=name)(mlp(hidden, (8,)))
        for name, hidden in zip(("earns", "married"), mixed, strict=True)
    }
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(0.005),
        loss={"earns": "binary_crossentropy", "married": "binary_crossentropy"},
        metrics={"earns": [keras.metrics.AUC(name="auc")], "married": ["accuracy"]},
    )
    return model


_CAR_KINDS = 5
_CAR = (
    Feature("maker", "int64", (1,), 50),
    Feature("measures", "float32", (5,)),
)


def _cars(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    maker, measures = ids(generator, count, 50, 1), numbers(generator, count, 5)
    price = measures @ truth("measures of cars", 5) + truth("makers", 50)[maker[:, 0]]
    scores = measures @ truth("kinds of cars", 5, _CAR_KINDS)
    scores = scores + truth("kinds of makers", 50, _CAR_KINDS)[maker[:, 0]]
    return {
        "maker": maker,
        "measures": measures,
        "price": noisy(generator, price, 0.2),
        "car_kind": np.argmax(noisy(generator, scores, 0.3), axis=1),
    }


def _price_and_kind() -> keras.Model:
    inputs = inputs_of(_CAR)
    maker = keras.layers.Flatten()(keras.layers.Embedding(50, 8)(inputs["maker"]))
    hidden = mlp(keras.layers.Concatenate()([maker, inputs["measures"]]), (64,), dropout=0.1)
    price = keras.layers.Dense(1, name="price")(mlp(hidden, (16,)))
    kind = keras.layers.Dense(_CAR_KINDS, activation="softmax", name="car_kind")(hidden)
    model = keras.Model(list(inputs.values()), [price, kind])
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss={
            "price": keras.losses.MeanSquaredError(),
            "car_kind": "sparse_categorical_crossentropy",
        },
        loss_weights={"price": 0.5, "car_kind": 1.0},
        metrics={"price": ["mae"], "car_kind": ["accuracy"]},
    )
    return model


_SHOWN = (
    Feature("user", "int64", (), 300),
    Feature("article", "int64", (), 200),
)


def _shown(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Only what is clicked can be bought."""
    user, article = ids(generator, count, 300), ids(generator, count, 200)
    clicks = truth("who clicks", 300)[user] + truth("what is clicked", 200)[article]
    buys = truth("who buys", 300)[user] + truth("what is bought", 200)[article]
    clicked = yes_or_no(generator, 1.5 * clicks)
    bought = clicked * yes_or_no(generator, 1.5 * buys)
    return {
        "user": user,
        "article": article,
        "clicked": clicked.astype(np.float32),
        "bought": bought.astype(np.float32),
    }


class ClickAndConversion(keras.Model):
    """How likely a click is, and a click that is followed by a purchase, from shared rows."""

    def __init__(self) -> None:
        super().__init__()
        self.users = keras.layers.Embedding(300, 8)
        self.articles = keras.layers.Embedding(200, 8)
        self.towers = [
            keras.Sequential(
                [
                    keras.layers.Dense(32, activation="relu"),
                    keras.layers.Dense(1, activation="sigmoid"),
                ]
            )
            for _ in range(2)
        ]

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        rows = [self.users(inputs["user"]), self.articles(inputs["article"])]
        clicked, bought_after = (tower(ops.concatenate(rows, axis=-1)) for tower in self.towers)
        return {"clicked": clicked, "bought": clicked * bought_after}


def _click_and_conversion() -> keras.Model:
    model = ClickAndConversion()
    model.compile(
        optimizer="adam",
        loss={"clicked": "binary_crossentropy", "bought": "binary_crossentropy"},
        loss_weights={"clicked": 1.0, "bought": 2.0},
        metrics={"clicked": ["AUC"], "bought": ["AUC"]},
    )
    return model


CASES = (
    Case(
        "mixture_of_experts",
        _KIND,
        _CITIZEN,
        (
            Feature("earns", "int64", vocabulary=YES_OR_NO),
            Feature("married", "int64", vocabulary=YES_OR_NO),
        ),
        _citizens,
        _mixture_of_experts,
    ),
    Case(
        "price_and_kind",
        _KIND,
        _CAR,
        (Feature("price", "float32"), Feature("car_kind", "int64", vocabulary=_CAR_KINDS)),
        _cars,
        _price_and_kind,
        tolerance=DRAWN,
    ),
    Case(
        "click_and_conversion",
        _KIND,
        _SHOWN,
        (Feature("clicked", "float32"), Feature("bought", "float32")),
        _shown,
        _click_and_conversion,
    ),
)
