"""A tfps config: the models of configs/criteo.py and configs/census.py with narrower rows."""

import dataclasses
from typing import Any

import keras

import tfps
from configs.census import Census
from configs.criteo import Criteo


@dataclasses.dataclass(frozen=True)
class _Narrow(tfps.Task):
    """Rows of a dtype, updated with an accumulator of their own each or with one for each value.

    Attributes:
        row_dtype: In which the ps hold rows.
        row_wise: Whether a row has a single accumulator.
    """

    row_dtype: str = "float32"
    row_wise: bool = False

    def table_optimizer(self, table: Any) -> keras.optimizers.Optimizer:
        """Adagrad, of values or of rows."""
        kind = tfps.RowWiseAdagrad if self.row_wise else keras.optimizers.Adagrad
        return kind(self.learning_rate)


@dataclasses.dataclass(frozen=True)
class NarrowCensus(_Narrow, Census):
    """The census model."""

    def embedding(self, rows: int, dim: int, **options: Any) -> keras.layers.Layer:
        """The layer of a feature or of a cross."""
        return tfps.Embedding(rows, dim, row_dtype=self.row_dtype, **options)


@dataclasses.dataclass(frozen=True)
class NarrowCriteo(_Narrow, Criteo):
    """The DLRM."""

    def embedding(self, name: str) -> keras.layers.Layer:
        """The layer of a categorical feature."""
        return tfps.Embedding(self.rows_per_table, self.dim, row_dtype=self.row_dtype, name=name)


def get_config() -> tfps.Experiment:
    """The experiment of the DLRM; its data is named by flags."""
    train = tfps.Train(batch_size=512, epochs=1)
    return tfps.Experiment("criteo_narrow", NarrowCriteo(), train=train)
