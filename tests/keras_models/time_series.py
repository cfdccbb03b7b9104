"""Forecasts of series, and a network that reproduces them."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tests.keras_models.case import DRAWN, Case, inputs_of
from tests.keras_models.signals import ids, noisy, truth
from tfps.data.feature import Feature

_KIND = "time series"


def _waves(generator: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Sums of two waves `[count, length]`, begun anywhere; their periods are always the same."""
    begun, sizes = generator.uniform(0.0, 24.0, (2, count, 1)), generator.random((2, count, 1))
    hours = np.arange(length)
    slow = np.sin(2.0 * np.pi * (hours + begun[0]) / 24.0)
    fast = np.sin(2.0 * np.pi * (hours + begun[1]) / 7.0)
    return (0.5 + sizes[0]) * slow + 0.5 * sizes[1] * fast


_HOURS = 24
_WEATHER = (Feature("weather", "float32", (_HOURS, 3)),)


def _weather(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Temperature, and two other series of which one is ahead of it."""
    waves = _waves(generator, count, _HOURS + 7)
    seen = np.stack([waves[:, :_HOURS], waves[:, 3 : _HOURS + 3], -waves[:, :_HOURS]], axis=-1)
    return {"weather": noisy(generator, seen, 0.1), "later": noisy(generator, waves[:, -1], 0.05)}


def _lstm_forecast() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((_HOURS, 3), name="weather"),
            keras.layers.LSTM(16, dropout=0.05),
            keras.layers.Dense(1),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.003, momentum=0.5),
        loss=keras.losses.Huber(),
        metrics=["mae"],
    )
    return model


_PAST, _FUTURE = 32, 6
_LOAD = (Feature("load", "float32", (_PAST, 1)),)


def _loads(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    waves = _waves(generator, count, _PAST + _FUTURE)
    return {
        "load": noisy(generator, waves[:, :_PAST, None], 0.05),
        "next": noisy(generator, waves[:, _PAST:], 0.05),
    }


def _temporal_cnn() -> keras.Model:
    load = inputs_of(_LOAD)["load"]
    hidden = keras.layers.Conv1D(16, 1)(load)
    for dilation in (1, 2, 4, 8):
        changed = keras.layers.Conv1D(
            16, 2, padding="causal", dilation_rate=dilation, activation="relu"
        )(hidden)
        changed = keras.layers.SpatialDropout1D(0.05)(changed)
        changed = keras.layers.Conv1D(16, 1)(changed)
        hidden = keras.layers.LayerNormalization()(keras.layers.Add()([hidden, changed]))
    model = keras.Model(load, keras.layers.Dense(_FUTURE)(hidden[:, -1]))
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss="mae",
        metrics=["mse", keras.metrics.CosineSimilarity()],
    )
    return model


_MOMENTS = 24
_READING = (Feature("readings", "float32", (_MOMENTS, 1)),)


def _readings(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """What is to be given back is what is put in."""
    readings = noisy(generator, _waves(generator, count, _MOMENTS)[..., None], 0.05)
    return {"readings": readings, "again": readings}


def _anomaly_autoencoder() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((_MOMENTS, 1), name="readings"),
            keras.layers.Conv1D(16, 5, strides=2, padding="same", activation="relu"),
            keras.layers.Dropout(0.1),
            keras.layers.Conv1D(8, 5, strides=2, padding="same", activation="relu"),
            keras.layers.Conv1DTranspose(8, 5, strides=2, padding="same", activation="relu"),
            keras.layers.Dropout(0.1),
            keras.layers.Conv1DTranspose(16, 5, strides=2, padding="same", activation="relu"),
            keras.layers.Conv1DTranspose(1, 5, padding="same"),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.003), loss="mse")
    return model


_STORES, _GOODS, _WEEKS = 50, 80, 12
_SALES = (
    Feature("store", "int64", (), _STORES),
    Feature("good", "int64", (), _GOODS),
    Feature("weeks", "float32", (_WEEKS,)),
)


def _sales(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Numbers of goods that were sold, as logarithms; the label is the number of next week."""
    store, good = ids(generator, count, _STORES), ids(generator, count, _GOODS)
    level = 1.0 + 0.5 * truth("stores", _STORES)[store] + 0.5 * truth("sorts", _GOODS)[good]
    level = level[:, None] + 0.5 * _waves(generator, count, _WEEKS + 1)
    sold = generator.poisson(np.exp(level))
    return {
        "store": store,
        "good": good,
        "weeks": np.log1p(sold[:, :-1]).astype(np.float32),
        "sold": sold[:, -1].astype(np.float32),
    }


class LastWeeks(keras.layers.Layer):
    """The mean of the last weeks, of which weights are learned."""

    def build(self, input_shape: Any) -> None:
        self.logits = self.add_weight(shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs: Any) -> Any:
        return ops.sum(inputs * ops.softmax(self.logits), axis=-1, keepdims=True)


def _store_sales() -> keras.Model:
    inputs = inputs_of(_SALES)
    weeks = inputs["weeks"]
    recurrent = keras.layers.GRU(16)(ops.expand_dims(weeks, -1))
    rows = [
        keras.layers.Embedding(_STORES, 4)(inputs["store"]),
        keras.layers.Embedding(_GOODS, 4)(inputs["good"]),
    ]
    hidden = keras.layers.Concatenate()([recurrent, LastWeeks()(weeks), *rows])
    hidden = keras.layers.Dense(32, activation="relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="softplus")(hidden))
    model.compile(optimizer="adam", loss="poisson", metrics=["mae"])
    return model


CASES = (
    Case("lstm_forecast", _KIND, _WEATHER, Feature("later", "float32"), _weather, _lstm_forecast),
    Case(
        "temporal_cnn",
        _KIND,
        _LOAD,
        Feature("next", "float32", (_FUTURE,)),
        _loads,
        _temporal_cnn,
        tolerance=DRAWN,
    ),
    Case(
        "anomaly_autoencoder",
        _KIND,
        _READING,
        Feature("again", "float32", (_MOMENTS, 1)),
        _readings,
        _anomaly_autoencoder,
        tolerance=DRAWN,
    ),
    Case("store_sales", _KIND, _SALES, Feature("sold", "float32"), _sales, _store_sales),
)
