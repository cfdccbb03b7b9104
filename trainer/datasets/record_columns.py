"""Some records of one file, a column per feature, with what is to be copied beside predictions."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class ListedColumn:
    """A column of Python values, which is cut as an array is.

    Attributes:
        values: One per record, or a list of them; None where it is missing.
        dtype: Of the values, as a feature's; those of `string` are `str`.
    """

    values: Sequence[Any]
    dtype: str
    holds_lists: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Self:
        return dataclasses.replace(self, values=self.values[rows])


@dataclasses.dataclass(frozen=True)
class RecordColumns:
    """Some records of one file.

    Attributes:
        features: By name, each `[count, *shape]`: a `tf.RaggedTensor` for shape `(None,)`, else an
            array, of bytes objects for strings.
        labels: By name, arrays `[count, *shape]`; none where the records have no labels.
        kept: By name, what is to be copied: an array `[count, *shape]`, a `ListedColumn`, or a
            `pyarrow.Array`.
    """

    where: str
    count: int
    features: Mapping[str, npt.NDArray[Any] | tf.RaggedTensor]
    labels: Mapping[str, npt.NDArray[Any]]
    kept: Mapping[str, Any]


def array_of(values: tf.Tensor | tf.RaggedTensor) -> Any:
    """A parsed feature as `RecordColumns` holds it."""
    return values if isinstance(values, tf.RaggedTensor) else np.asarray(values.numpy())
