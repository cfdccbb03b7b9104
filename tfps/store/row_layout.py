"""What a group's rows and their slots need to know of where they lie."""

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from tfps.experiment.task import Table


class RowLayout(Protocol):
    """Where the rows of a group of tables of one dimension lie: a run of them on each ps."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables."""

    @property
    def parts(self) -> int:
        """Number of parts, one per ps."""

    @property
    def name(self) -> str:
        """Name of the group in checkpoints, unique."""

    @property
    def dim(self) -> int:
        """Length of a row."""

    @property
    def id_dtype(self) -> tf.DType:
        """Dtype of rows' numbers as they travel to the ps."""

    @property
    def total_rows(self) -> int:
        """Rows of the whole group."""

    def bounds(self, part: int) -> tuple[int, int]:
        """First row of a part and the one after its last."""

    def mark_bytes(self, row_bytes: int) -> int:
        """Bytes that a ps keeps beside each row, which has so many with its slots."""

    def new_variable(self, shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
        """Memory for something that each row of a part has; under the device of its ps."""
