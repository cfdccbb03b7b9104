"""What customers put together, with the embedding layers of keras-rs."""

from typing import Any

import keras
import keras_rs
import numpy as np

from tests.keras_models.case import YES_OR_NO, Case, inputs_of
from tests.keras_models.layers import mlp
from tests.keras_models.signals import ids, truth, yes_or_no
from tfps.data.feature import Feature

_ARTICLES, _SHOPS, _DIM, _PLACES = 300, 40, 8, 6
_INPUTS = (
    Feature("basket", "int64", (_PLACES,), _ARTICLES),
    Feature("amounts", "float32", (_PLACES,)),
    Feature("looked_at", "int64", (), _ARTICLES),
    Feature("shop", "int64", (), _SHOPS),
)


def _purchases(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    basket = ids(generator, count, _ARTICLES, _PLACES)
    amounts = generator.uniform(0.5, 1.5, (count, _PLACES)).astype(np.float32)
    looked_at, shop = ids(generator, count, _ARTICLES), ids(generator, count, _SHOPS)
    worth = truth("worth", _ARTICLES)
    logits = (amounts * worth[basket]).mean(axis=1) + worth[looked_at] + truth("shop", _SHOPS)[shop]
    return {
        "basket": basket,
        "amounts": amounts,
        "looked_at": looked_at,
        "shop": shop,
        "returns": yes_or_no(generator, 1.5 * logits),
    }


def _configured(name: str, table: keras_rs.layers.TableConfig) -> keras_rs.layers.FeatureConfig:
    return keras_rs.layers.FeatureConfig(name, table, (None,), (None, table.embedding_dim))


def _weighted_basket() -> keras.Model:
    """The basket's articles by their amounts; two more ids by way of distributed tables."""
    inputs: dict[str, Any] = inputs_of(_INPUTS)
    articles = keras_rs.layers.TableConfig("articles", _ARTICLES, _DIM, optimizer="adam")
    shops = keras_rs.layers.TableConfig("shops", _SHOPS, _DIM, optimizer="adam")
    tables = keras_rs.layers.DistributedEmbedding(
        {"looked_at": _configured("looked_at", articles), "shop": _configured("shop", shops)},
        name="tables",
    )
    single = tables({name: inputs[name] for name in ("looked_at", "shop")})
    reduced = keras_rs.layers.EmbedReduce(_ARTICLES, _DIM, combiner="mean", name="basket_mean")
    parts = [reduced(inputs["basket"], inputs["amounts"]), *single.values()]
    hidden = mlp(keras.layers.Concatenate()(parts), (16,))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


CASES = (
    Case(
        name="weighted_basket",
        kind="recommendation",
        features=_INPUTS,
        label=Feature("returns", "int64", (), YES_OR_NO),
        columns=_purchases,
        build=_weighted_basket,
    ),
)
