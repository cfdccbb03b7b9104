"""The wide and deep model on the census income data, with words as they stand in the rows.

As in `configs/census.py`, but no vocabulary is known beforehand: each word, each bucket and each
pair of them is a string, whose row comes when it is first seen.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tfps
from configs.census import (
    BUCKETS,
    COLUMNS,
    CROSSES,
    NUMBERS,
    VOCABULARIES,
    Census,
    bucket,
    income,
    scaled,
)

_WORDS = (*VOCABULARIES, *(f"{name}_bucket" for name in BUCKETS))


@keras.saving.register_keras_serializable("census_raw")
class Pair(keras.layers.Layer):
    """Joins two strings of each record to one."""

    def call(self, pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """The joined strings `[batch]` of two strings `[batch]`."""
        return tf.strings.join(pair, " x ")

    def compute_output_spec(self, pair: Any) -> keras.KerasTensor:
        """Shape and dtype of what `call` returns."""
        return keras.KerasTensor(pair[0].shape, "string")


@dataclasses.dataclass(frozen=True)
class CensusOfWords(Census):
    """The model of the census, whose embeddings and crosses are looked up by strings.

    Attributes:
        max_rows: Of each table.
        admit_after: Occurrences after which a string gets a row.
    """

    max_rows: int = 2_000
    admit_after: int = 1

    def features(self) -> tuple[tfps.Feature, ...]:
        """Six numbers, and a string for each categorical and each bucketed number."""
        numbers = [tfps.Feature(name, "float32") for name in NUMBERS]
        return (*numbers, *(tfps.Feature(name, "string") for name in _WORDS))

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        inputs = {
            feature.name: keras.Input((), name=feature.name, dtype=feature.dtype)
            for feature in self.features()
        }
        deep = [keras.ops.expand_dims(inputs[name], 1) for name in NUMBERS]
        deep += [self._table(self.dim, f"{name}_deep", "uniform")(inputs[name]) for name in _WORDS]
        wide = [
            self._table(1, f"{first}_x_{second}", "zeros")(Pair()((inputs[first], inputs[second])))
            for first, second in CROSSES
        ]
        return keras.Model(inputs, self.logits(deep, wide))

    def rows(self) -> tfps.RowFormat:
        """The columns of `adult.data`."""
        fields = {name: tfps.Field((name,), scaled(scale)) for name, scale in NUMBERS.items()}
        fields |= {name: tfps.Field((name,), str.encode) for name in VOCABULARIES}
        for name, bounds in BUCKETS.items():
            fields[f"{name}_bucket"] = tfps.Field((name,), _word(bucket(bounds)))
        fields["income"] = tfps.Field(("income",), income)
        return tfps.RowFormat(COLUMNS, ",", fields)

    def _table(self, dim: int, name: str, initializer: str) -> keras.layers.Layer:
        return tfps.DynamicEmbedding(
            dim,
            self.max_rows,
            key_dtype="string",
            admit_after=self.admit_after,
            embeddings_initializer=initializer,
            name=name,
        )


def _word(read: Callable[[str], int]) -> Callable[[str], bytes]:
    return lambda cell: b"%d" % read(cell)


def get_config() -> tfps.Experiment:
    """The experiment; its data is named by flags."""
    train = tfps.Train(batch_size=128, epochs=10)
    return tfps.Experiment("census_raw", CensusOfWords(), train=train)
