"""Linear models and dense networks on the columns of a table."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tests.keras_models.case import DRAWN, YES_OR_NO, Case, inputs_of
from tests.keras_models.layers import mlp
from tests.keras_models.signals import ids, noisy, numbers, truth, yes_or_no
from tfps.data.feature import Feature

_KIND = "structured data"

_VISIT = (
    Feature("country", "int64", (), 50),
    Feature("device", "int64", (), 8),
    Feature("hour", "int64", (), 24),
)


def _visits(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    visit = {each.name: ids(generator, count, each.vocabulary) for each in _VISIT}
    logits = truth("country and device", 50, 8)[visit["country"], visit["device"]]
    logits = logits + truth("device and hour", 8, 24)[visit["device"], visit["hour"]]
    return {**visit, "clicked": yes_or_no(generator, 2.0 * logits - 1.0)}


def _logistic_on_crosses() -> keras.Model:
    inputs = inputs_of(_VISIT)
    country, device, hour = inputs.values()
    weights = [
        keras.layers.Embedding(size, 1, embeddings_initializer="zeros")(each)
        for each, size in (
            (country, 50),
            (device, 8),
            (hour, 24),
            (country * 8 + device, 50 * 8),
            (device * 24 + hour, 8 * 24),
        )
    ]
    clicked = keras.layers.Activation("sigmoid")(keras.layers.Add()(weights))
    model = keras.Model(inputs, clicked)
    model.compile(
        optimizer=keras.optimizers.Ftrl(
            0.3, initial_accumulator_value=1e-3, l1_regularization_strength=1e-4
        ),
        loss="binary_crossentropy",
        metrics=["accuracy", keras.metrics.AUC(name="auc")],
    )
    return model


_SCHOOLS = tuple(f"class {number}" for number in range(1, 13))
_TRADES = ("baker", "carter", "cooper", "miller", "potter", "sawyer", "smith", "tailor", "weaver")
_PERSON = (
    Feature("school", "string"),
    Feature("trade", "string"),
    Feature("age", "float32"),
    Feature("hours", "float32"),
)


def _people(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    school, trade = ids(generator, count, len(_SCHOOLS)), ids(generator, count, len(_TRADES))
    age = generator.uniform(17.0, 80.0, count).astype(np.float32)
    hours = generator.uniform(5.0, 60.0, count).astype(np.float32)
    logits = 2.0 * truth("school and trade", len(_SCHOOLS), len(_TRADES))[school, trade]
    logits = logits + (hours - 32.0) / 10.0 - np.abs(age - 50.0) / 15.0
    return {
        "school": np.array(_SCHOOLS, object)[school],
        "trade": np.array(_TRADES, object)[trade],
        "age": age,
        "hours": hours,
        "rich": yes_or_no(generator, logits),
    }


def _wide_and_deep() -> keras.Model:
    inputs = inputs_of(_PERSON)
    school = keras.layers.StringLookup(vocabulary=_SCHOOLS)(inputs["school"])
    trade = keras.layers.StringLookup(vocabulary=_TRADES)(inputs["trade"])
    crossed = keras.layers.HashedCrossing(num_bins=256)((inputs["school"], inputs["trade"]))
    wide = [
        keras.layers.Embedding(size, 1)(each)
        for each, size in (
            (school, len(_SCHOOLS) + 1),
            (trade, len(_TRADES) + 1),
            (crossed, 256),
        )
    ]
    age = keras.layers.Rescaling(1.0 / 30.0, -1.5)(ops.expand_dims(inputs["age"], 1))
    hours = keras.layers.Rescaling(1.0 / 20.0, -1.5)(ops.expand_dims(inputs["hours"], 1))
    rows = [
        keras.layers.Embedding(len(_SCHOOLS) + 1, 8)(school),
        keras.layers.Embedding(len(_TRADES) + 1, 8)(trade),
    ]
    deep = mlp(keras.layers.Concatenate()([*rows, age, hours]), (32, 16))
    logit = keras.layers.Add()([keras.layers.Dense(1)(deep), *wide])
    model = keras.Model(inputs, logit)
    model.compile(
        optimizer=keras.optimizers.Adagrad(learning_rate=0.1),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.AUC(from_logits=True, name="auc")],
    )
    return model


class Cross(keras.layers.Layer):
    """What came in first times a linear map of what comes in now, added to the latter."""

    def build(self, first_shape: Any, inputs_shape: Any) -> None:
        size = first_shape[-1]
        self.kernel = self.add_weight(shape=(size, size), initializer="glorot_uniform")
        self.bias = self.add_weight(shape=(size,), initializer="zeros")

    def call(self, first: Any, inputs: Any) -> Any:
        return first * (ops.matmul(inputs, self.kernel) + self.bias) + inputs


_CATEGORIES, _CATEGORY_SIZE = 6, 100
_TABLE = (
    Feature("categories", "int64", (_CATEGORIES,), _CATEGORY_SIZE),
    Feature("measures", "float32", (4,)),
)


def _rows(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    categories = ids(generator, count, _CATEGORY_SIZE, _CATEGORIES)
    measures = numbers(generator, count, 4)
    effects = truth("effects of categories", _CATEGORIES, _CATEGORY_SIZE)
    each = effects[np.arange(_CATEGORIES), categories]
    logits = each[:, 0] * each[:, 1] + each[:, 2:].sum(axis=1) + measures @ truth("measures", 4)
    return {
        "categories": categories,
        "measures": measures,
        "label": yes_or_no(generator, logits).astype(np.float32),
    }


def _deep_and_cross() -> keras.Model:
    inputs = inputs_of(_TABLE)
    rows = [
        keras.layers.Embedding(_CATEGORY_SIZE, 8)(inputs["categories"][:, column])
        for column in range(_CATEGORIES)
    ]
    first = crossed = keras.layers.Concatenate()([*rows, inputs["measures"]])
    for _ in range(2):
        crossed = Cross()(first, crossed)
    deep = keras.layers.BatchNormalization()(mlp(first, (32,), dropout=0.1))
    both = keras.layers.Concatenate()([crossed, deep])
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(both))
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy", "auc"])
    return model


_COLORS = ("amber", "black", "brown", "green", "orange", "red", "white", "yellow")
_BREEDS = tuple(f"breed {letter}{number}" for letter in "abcde" for number in range(12))
_ANIMAL = (
    Feature("color", "string"),
    Feature("breed", "string"),
    Feature("months", "float32", (1,)),
)


def _animals(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """A few are of a breed that the vocabulary does not have."""
    color, breed = ids(generator, count, len(_COLORS)), ids(generator, count, len(_BREEDS))
    months = generator.exponential(1.0, (count, 1)).astype(np.float32)
    logits = truth("colors", len(_COLORS))[color] + 2.0 * truth("breeds", len(_BREEDS))[breed]
    breeds = np.array(_BREEDS, object)[breed]
    breeds[generator.random(count) < 0.02] = "mongrel"
    return {
        "color": np.array(_COLORS, object)[color],
        "breed": breeds,
        "months": months,
        "adopted": yes_or_no(generator, logits - months[:, 0]),
    }


def _string_lookup_mlp() -> keras.Model:
    inputs = inputs_of(_ANIMAL)
    rows = []
    for name, words in (("color", _COLORS), ("breed", _BREEDS)):
        lookup = keras.layers.StringLookup(vocabulary=list(words), name=f"{name}_lookup")
        rows.append(
            keras.layers.Embedding(lookup.vocabulary_size(), 8, name=f"{name}_row")(
                lookup(inputs[name])
            )
        )
    hidden = keras.layers.concatenate([*rows, inputs["months"]])
    for units in (32, 32):
        hidden = keras.layers.Dense(
            units,
            activation="relu",
            kernel_regularizer=keras.regularizers.L2(1e-4),
            bias_regularizer="l2",
        )(hidden)
        hidden = keras.layers.Dropout(0.2)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=0.005, weight_decay=1e-4),
        loss=keras.losses.BinaryCrossentropy(),
        metrics=[keras.metrics.BinaryAccuracy(), keras.metrics.Precision(), "recall"],
    )
    return model


_POSTCODES = tuple(range(1010, 1410, 10))
_HOUSE = (
    Feature("sizes", "float32", (5,)),
    Feature("latitude", "float32", (1,)),
    Feature("postcode", "int64"),
)
_SIZES_MEAN, _SIZES_DEVIATION = np.array([120.0, 4.0, 1.5, 35.0, 400.0]), 0.3
_BANDS = (47.5, 48.0, 48.5, 49.0, 49.5)


def _houses(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    scaled = numbers(generator, count, 5)
    latitude = generator.uniform(47.0, 50.0, (count, 1)).astype(np.float32)
    place = ids(generator, count, len(_POSTCODES))
    price = scaled @ truth("prices of sizes", 5) + 2.0 * truth("places", len(_POSTCODES))[place]
    price = price + truth("bands", 6)[np.digitize(latitude[:, 0], _BANDS)]
    return {
        "sizes": (_SIZES_MEAN * (1.0 + _SIZES_DEVIATION * scaled)).astype(np.float32),
        "latitude": latitude,
        "postcode": np.array(_POSTCODES)[place],
        "price": noisy(generator, price, 0.3),
    }


def _normalized_mlp() -> keras.Model:
    inputs = inputs_of(_HOUSE)
    scale = keras.layers.Normalization()
    spread = 1.0 + _SIZES_DEVIATION * np.array([[-1.0], [1.0]])  # around the mean
    scale.adapt((_SIZES_MEAN * spread).astype(np.float32))
    center = keras.layers.Normalization(mean=[48.5], variance=[0.75])
    band = keras.layers.Discretization(bin_boundaries=_BANDS, output_mode="one_hot")
    place = keras.layers.IntegerLookup(vocabulary=list(_POSTCODES))
    rows = keras.layers.Embedding(place.vocabulary_size(), 8)(place(inputs["postcode"]))
    parts = [
        scale(inputs["sizes"]),
        center(inputs["latitude"]),
        band(inputs["latitude"]),
        rows,
    ]
    hidden = mlp(keras.layers.Concatenate()(parts), (64, 32))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.003),
        loss="mse",
        metrics=["mae", keras.metrics.RootMeanSquaredError()],
    )
    return model


CASES = (
    Case(
        "logistic_on_crosses",
        _KIND,
        _VISIT,
        Feature("clicked", "int64", vocabulary=YES_OR_NO),
        _visits,
        _logistic_on_crosses,
    ),
    Case(
        "wide_and_deep",
        _KIND,
        _PERSON,
        Feature("rich", "int64", vocabulary=YES_OR_NO),
        _people,
        _wide_and_deep,
    ),
    Case("deep_and_cross", _KIND, _TABLE, Feature("label", "float32"), _rows, _deep_and_cross),
    Case(
        "string_lookup_mlp",
        _KIND,
        _ANIMAL,
        Feature("adopted", "int64", vocabulary=YES_OR_NO),
        _animals,
        _string_lookup_mlp,
        tolerance=DRAWN,
    ),
    Case("normalized_mlp", _KIND, _HOUSE, Feature("price", "float32"), _houses, _normalized_mlp),
)
