"""Networks on the columns of a table that attend to some of them, or tell how sure they are."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tests.keras_models.case import DRAWN, YES_OR_NO, Case, inputs_of
from tests.keras_models.layers import TransformerBlock, mlp
from tests.keras_models.signals import ids, numbers, truth, yes_or_no
from tfps.data.feature import Feature

_KIND = "structured data"

_COLUMNS, _SIZE, _DIM = 5, 40, 16
_FORM = (
    Feature("categories", "int64", (_COLUMNS,), _SIZE),
    Feature("amounts", "float32", (3,)),
)


def _forms(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    categories, amounts = ids(generator, count, _SIZE, _COLUMNS), numbers(generator, count, 3)
    each = truth("columns of a form", _COLUMNS, _SIZE)[np.arange(_COLUMNS), categories]
    logits = 1.5 * each.sum(axis=1) + amounts @ truth("amounts", 3)
    return {
        "categories": categories,
        "amounts": amounts,
        "granted": yes_or_no(generator, logits),
    }


def _tab_transformer() -> keras.Model:
    inputs = inputs_of(_FORM)
    categories, amounts = inputs["categories"], inputs["amounts"]
    rows = [
        keras.layers.Embedding(_SIZE, _DIM)(categories[:, column]) for column in range(_COLUMNS)
    ]
    columns = ops.arange(_COLUMNS, dtype="int64") + 0 * categories
    hidden = ops.stack(rows, axis=1) + keras.layers.Embedding(_COLUMNS, _DIM)(columns)
    hidden = TransformerBlock(_DIM, heads=2, units=32)(hidden)
    flat = keras.layers.Flatten()(hidden)
    scaled = keras.layers.LayerNormalization(epsilon=1e-6)(amounts)
    hidden = mlp(keras.layers.Concatenate()([flat, scaled]), (32, 16), dropout=0.1)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=0.003, weight_decay=1e-4),
        loss=keras.losses.BinaryCrossentropy(),
        metrics=[keras.metrics.BinaryAccuracy(name="accuracy")],
    )
    return model


class GatedResidual(keras.layers.Layer):
    """A small network whose gate says how much of it is added to what came in."""

    def __init__(self, units: int, dropout: float):
        super().__init__()
        self.hidden = keras.layers.Dense(units, activation="elu")
        self.linear = keras.layers.Dense(units)
        self.dropout = keras.layers.Dropout(dropout)
        self.value = keras.layers.Dense(units)
        self.gate = keras.layers.Dense(units, activation="sigmoid")
        self.project = keras.layers.Dense(units)
        self.norm = keras.layers.LayerNormalization()

    def call(self, inputs: Any, training: bool = False) -> Any:
        hidden = self.dropout(self.linear(self.hidden(inputs)), training=training)
        return self.norm(self.project(inputs) + self.value(hidden) * self.gate(hidden))


class VariableSelection(keras.layers.Layer):
    """A weighted sum of networks of one column each; the weights depend on all columns."""

    def __init__(self, columns: int, units: int, dropout: float):
        super().__init__()
        self.networks = [GatedResidual(units, dropout) for _ in range(columns)]
        self.all = GatedResidual(units, dropout)
        self.weights_of = keras.layers.Dense(columns, activation="softmax")

    def call(self, inputs: Any, training: bool = False) -> Any:
        weights = self.weights_of(self.all(ops.concatenate(inputs, axis=-1), training=training))
        outputs = [
            network(each, training=training)
            for network, each in zip(self.networks, inputs, strict=True)
        ]
        return ops.sum(ops.stack(outputs, axis=1) * weights[..., None], axis=1)


_CUSTOMER = (
    Feature("job", "int64", (), 30),
    Feature("city", "int64", (), 80),
    Feature("balance", "float32", (1,)),
)


def _customers(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    customer = {}
    logits = np.zeros(count)
    for feature in _CUSTOMER:
        if feature.vocabulary:
            values = ids(generator, count, feature.vocabulary)
            logits += truth(feature.name, feature.vocabulary)[values]
        else:
            values = numbers(generator, count, 1)
            logits += 1.5 * values[:, 0]
        customer[feature.name] = values
    return {**customer, "subscribed": yes_or_no(generator, logits)}


def _variable_selection() -> keras.Model:
    inputs = inputs_of(_CUSTOMER)
    columns = []
    for feature in _CUSTOMER:
        if feature.vocabulary:
            layer = keras.layers.Embedding(feature.vocabulary, 16, name=f"{feature.name}_row")
        else:
            layer = keras.layers.Dense(16, name=f"{feature.name}_projection")
        columns.append(layer(inputs[feature.name]))
    chosen = VariableSelection(len(columns), 16, dropout=0.1)(columns)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(chosen))
    rate = keras.optimizers.schedules.ExponentialDecay(0.005, decay_steps=50, decay_rate=0.9)
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=rate),
        loss="binary_crossentropy",
        metrics=[keras.metrics.AUC(curve="PR", name="auc_pr")],
    )
    return model


_QUANTILES = (0.1, 0.5, 0.9)
_TRIP = (
    Feature("distances", "float32", (4,)),
    Feature("zone", "int64", (1,), 60),
)


def _trips(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    distances, zone = numbers(generator, count, 4), ids(generator, count, 60, 1)
    minutes = distances @ truth("distances", 4, 1) + 2.0 * truth("zones", 60)[zone]
    spread = generator.exponential(0.5, (count, 1)) * np.exp(0.5 * distances[:, :1])
    return {
        "distances": distances,
        "zone": zone,
        "minutes": (minutes + spread).astype(np.float32),
    }


def _pinball(y_true: Any, y_pred: Any) -> Any:
    """Is least where as many labels lie below each prediction as its quantile says."""
    missed = y_true - y_pred
    quantiles = ops.convert_to_tensor(_QUANTILES, dtype=y_pred.dtype)
    return ops.mean(ops.maximum(quantiles * missed, (quantiles - 1.0) * missed), axis=-1)


def _inside(y_true: Any, y_pred: Any) -> Any:
    """Whether a label lies between the lowest and the highest quantile."""
    is_inside = ops.logical_and(y_true[:, 0] >= y_pred[:, 0], y_true[:, 0] <= y_pred[:, -1])
    return ops.cast(is_inside, "float32")


def _quantile_regression() -> keras.Model:
    inputs = inputs_of(_TRIP)
    row = keras.layers.Flatten()(keras.layers.Embedding(60, 8)(inputs["zone"]))
    hidden = keras.layers.Concatenate()([inputs["distances"], row])
    hidden = mlp(hidden, (32, 32))
    model = keras.Model(inputs, keras.layers.Dense(len(_QUANTILES))(hidden))
    model.compile(
        optimizer=keras.optimizers.Lion(learning_rate=0.003), loss=_pinball, metrics=[_inside]
    )
    return model


CASES = (
    Case(
        "tab_transformer",
        _KIND,
        _FORM,
        Feature("granted", "int64", vocabulary=YES_OR_NO),
        _forms,
        _tab_transformer,
        tolerance=DRAWN,
    ),
    Case(
        "variable_selection",
        _KIND,
        _CUSTOMER,
        Feature("subscribed", "int64", vocabulary=YES_OR_NO),
        _customers,
        _variable_selection,
        tolerance=DRAWN,
    ),
    Case(
        "quantile_regression",
        _KIND,
        _TRIP,
        Feature("minutes", "float32", (1,)),
        _trips,
        _quantile_regression,
    ),
)
