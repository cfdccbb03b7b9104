"""How an exported model keeps the rows of its tables."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.experiment.experiment import FLOAT32, INT8

_LARGEST = 127.0  # of an int8, so that zero stays zero


class RowTensor(NamedTuple):
    """One of the tensors in which the rows of a group are kept."""

    dtype: tf.DType
    width: int


@dataclasses.dataclass(frozen=True)
class RowEncoding:
    """Rows as float32 or bfloat16, or as int8 with one float32 scale for each row."""

    dtype: str = FLOAT32

    @property
    def is_exact(self) -> bool:
        """Whether rows are kept as they are."""
        return self.dtype == FLOAT32

    def tensors(self, dim: int) -> list[RowTensor]:
        """What is kept of rows of so many values."""
        values = RowTensor(tf.as_dtype(self.dtype), dim)
        return [values, RowTensor(tf.float32, 1)] if self.dtype == INT8 else [values]

    def encode(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """What is kept of rows.

        Args:
            rows: `[n, dim]` float32.

        Returns:
            As many tensors `[n, width]` as `tensors` tells of.
        """
        if self.dtype != INT8:
            return [tf.cast(rows, self.dtype)]
        scales = tf.reduce_max(tf.abs(rows), 1, keepdims=True) / _LARGEST
        # Of a row of zeros, or of numbers too small for a scale, zeros are kept.
        whole = tf.round(tf.math.divide_no_nan(rows, scales))
        return [tf.cast(tf.clip_by_value(whole, -_LARGEST, _LARGEST), tf.int8), scales]

    def decode(self, kept: Sequence[tf.Tensor]) -> tf.Tensor:
        """The rows `[n, dim]` float32 of what `encode` gave for them."""
        values, *scales = kept
        rows = tf.cast(values, tf.float32)
        return rows * scales[0] if scales else rows


EXACT = RowEncoding()
