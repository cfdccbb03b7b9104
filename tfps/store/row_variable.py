"""The rows of a group of tables on the ps, each with its slots right behind it."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfps.optimizers.slot import Slot
from tfps.store.partitioned_variable import PartitionedVariable, TensorSlice
from tfps.store.row_layout import RowLayout


class RowVariable:
    """One variable per ps, which has `1 + slots` lines of length dim for each row.

    What costs time is fetching rows from all over a large memory: so what an update needs of a row
    lies together, which takes less than half the time of TensorFlow's sparse kernels on separate
    variables, and a pull fetches the row's own line only.

    The methods are to be called under the device of the part's ps.

    Attributes:
        lines: Of the variable, for each row.
    """

    def __init__(self, layout: RowLayout, devices: Sequence[str], slots: Mapping[str, Slot]):
        """Creates every part on its ps, without initial values.

        Args:
            layout: Where the rows lie.
            devices: One per ps.
            slots: The slots of a row, by name.
        """
        self.lines = 1 + len(slots)
        self._layout = layout
        self._starts = [slot.start for slot in slots.values()]
        self._variable = PartitionedVariable(
            layout.name,
            (layout.total_rows * self.lines, layout.dim),
            self._line_bounds,
            devices,
            self._new_part,
            {},
        )

    def first_lines(self, rows: tf.Tensor) -> tf.Tensor:
        """Where rows of a part begin in its variable, of the shape of `rows`."""
        if self.lines == 1:
            return rows
        if self._layout.total_rows * self.lines >= 2**31:
            rows = tf.cast(rows, tf.int64)
        return rows * self.lines

    def all_lines(self, rows: tf.Tensor) -> tf.Tensor:
        """Where rows of a part and their slots are in its variable, `[n, 1 + slots]`."""
        first = self.first_lines(rows)[:, tf.newaxis]
        return first + tf.range(self.lines, dtype=first.dtype)

    def read(self, part: int, lines: tf.Tensor) -> tf.Tensor:
        """The values of lines, `[*lines.shape, dim]`."""
        return tf.raw_ops.ResourceGather(
            resource=self._variable.parts[part].handle, indices=lines, dtype=tf.float32
        )

    def write(self, part: int, lines: tf.Tensor, values: tf.Tensor) -> tf.Operation:
        """Overwrites lines."""
        return tf.raw_ops.ResourceScatterUpdate(
            resource=self._variable.parts[part].handle, indices=lines, updates=values
        )

    def begin(self, part: int, rows: tf.Tensor, values: tf.Tensor) -> None:
        """Writes initial values of rows of a part, with what their slots start from."""
        lines = rows[:, tf.newaxis] * self.lines + tf.range(self.lines, dtype=rows.dtype)
        flat = tf.reshape(self.begun(values), [-1, self._layout.dim])
        self.write(part, tf.reshape(lines, [-1]), flat)

    def begun(self, values: tf.Tensor) -> tf.Tensor:
        """Rows `[u, dim]` with what their slots start from, `[u, 1 + slots, dim]`."""
        slots = [tf.fill(tf.shape(values), np.float32(start)) for start in self._starts]
        return tf.stack([values, *slots], 1)

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds of the rows, a slice per ps."""
        return [dataclasses.replace(each, lines=self.lines) for each in self._variable.slices()]

    def _line_bounds(self, part: int) -> tuple[int, int]:
        first, end = self._layout.bounds(part)
        return first * self.lines, end * self.lines

    def _new_part(self, part: int) -> tf.Variable:
        first, end = self._line_bounds(part)
        return self._layout.new_variable([end - first, self._layout.dim], tf.float32)
