"""DLRM on the Criteo layout: a label, 13 integers and 26 categoricals per row.

Rows are those of the Criteo display advertising data: tab-separated, no header, empty cells for
missing values, categoricals as 8 hexadecimal digits.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import tfps
from tfps.data.converters import hexadecimal_id, number
from tfps.errors import UserError

_INTEGERS = tuple(f"integer_{index}" for index in range(1, 14))
_CATEGORICALS = tuple(f"categorical_{index}" for index in range(1, 27))


@dataclasses.dataclass(frozen=True)
class Criteo(tfps.Task):
    """One table per categorical, an MLP over all embeddings and the numbers.

    Attributes:
        rows_per_table: Rows of each of the 26 tables; raw ids are hashed into them.
        dim: Embedding dimension.
        mlp: Units of the hidden layers.
        learning_rate: Of Adagrad, for tables and dense parameters.
        interaction: Adds the dot products of all pairs of embeddings to the MLP's input.
    """

    rows_per_table: int = 20_000
    dim: int = 16
    mlp: tuple[int, ...] = (128, 64)
    learning_rate: float = 0.05
    interaction: bool = False

    def __post_init__(self) -> None:
        if self.rows_per_table < 2:
            raise UserError(f"task.rows_per_table={self.rows_per_table} must be at least 2")

    def features(self) -> tuple[tfps.Feature, ...]:
        """13 numbers and 26 ids."""
        return (
            tfps.Feature("integers", "float32", (len(_INTEGERS),)),
            tfps.Feature("categoricals", "int64", (len(_CATEGORICALS),), self.rows_per_table),
        )

    def label(self) -> tfps.Feature:
        """Whether the advertisement was clicked."""
        return tfps.Feature("label", "int64", vocabulary=2)

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        integers = keras.Input((len(_INTEGERS),), name="integers", dtype="float32")
        categoricals = keras.Input((len(_CATEGORICALS),), name="categoricals", dtype="int64")
        embeddings = [
            self.embedding(name)(categoricals[:, index]) for index, name in enumerate(_CATEGORICALS)
        ]
        parts = [*embeddings, integers]
        if self.interaction:
            parts.append(_pairwise_dots(embeddings))
        hidden = keras.layers.Concatenate(name="concatenated")(parts)
        for index, units in enumerate(self.mlp, start=1):
            hidden = keras.layers.Dense(units, activation="relu", name=f"hidden_{index}")(hidden)
        logits = keras.layers.Dense(1, name="logits")(hidden)
        return keras.Model({"integers": integers, "categoricals": categoricals}, logits)

    def embedding(self, name: str) -> keras.layers.Layer:
        """The layer of a categorical feature."""
        return keras.layers.Embedding(self.rows_per_table, self.dim, name=name)

    def loss(self) -> keras.losses.Loss:
        """Binary cross-entropy of logits."""
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Adagrad, for tables as well."""
        return keras.optimizers.Adagrad(self.learning_rate)

    def predictions(self, outputs: Any) -> Any:
        """Probabilities `[batch]`."""
        return keras.ops.sigmoid(keras.ops.reshape(outputs, (-1,)))

    def rows(self) -> tfps.RowFormat:
        """Tab-separated: label, integers, categoricals."""
        return tfps.RowFormat(
            columns=("label", *_INTEGERS, *_CATEGORICALS),
            delimiter="\t",
            fields={
                "label": tfps.Field(("label",), _click),
                "integers": tfps.Field(_INTEGERS, _log_count),
                "categoricals": tfps.Field(_CATEGORICALS, hexadecimal_id(self.rows_per_table)),
            },
        )


def get_config() -> tfps.Experiment:
    """The experiment; its data is named by flags."""
    return tfps.Experiment("criteo", Criteo(), train=tfps.Train(batch_size=512, epochs=1))


def _pairwise_dots(embeddings: Sequence[Any]) -> Any:
    """Dot products `[batch, n (n - 1) / 2]` of n embeddings `[batch, dim]`."""
    count = len(embeddings)
    stacked = keras.ops.stack(embeddings, axis=1)
    dots = keras.ops.matmul(stacked, keras.ops.transpose(stacked, (0, 2, 1)))
    first, second = np.triu_indices(count, k=1)
    flat = keras.ops.reshape(dots, (-1, count * count))
    return keras.ops.take(flat, first * count + second, axis=1)


def _click(text: str) -> int:
    if text not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return int(text)


def _log_count(text: str) -> float:
    """Counts are heavy-tailed; a missing or negative one becomes 0."""
    return math.log1p(max(number(text), 0.0)) if text else 0.0
