"""The rows of a group of tables on the ps, each with its slots right behind it."""

import dataclasses
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfps.optimizers.update_rule import Slot
from tfps.store.group_layout import RowLayout
from tfps.store.partitioned_variable import PartitionedVariable, TensorSlice
from tfps.store.stored_row import StoredRow, draw_noise


class RowVariable:
    """One variable per ps, which has a few lines for each row: those of `StoredRow`.

    What costs time is fetching rows from all over a large memory: so what an update needs of a row
    lies together, which takes less than half the time of TensorFlow's sparse kernels on separate
    variables, and a pull fetches the row's own line only.

    The methods are to be called under the device of the part's ps.
    """

    def __init__(
        self, layout: RowLayout, row: StoredRow, devices: Sequence[str], slots: Mapping[str, Slot]
    ):
        self._layout, self._row = layout, row
        self._slots = list(slots.values())
        self._stream = zlib.crc32(layout.name.encode())
        self._variable = PartitionedVariable(
            layout.name,
            (layout.total_rows * row.lines, row.width),
            self._line_bounds,
            devices,
            self._new_part,
            {},
        )

    def read(self, part: int, rows: tf.Tensor, with_slots: bool) -> list[tf.Tensor]:
        """Rows of a part, and their slots.

        Args:
            rows: Their numbers within the part, `[u]`.
            with_slots: Whether all slots are read; else those alone that a row has a single value
                of.

        Returns:
            The rows `[u, dim]` and each slot, `[u, dim]` or `[u, 1]`, float32.
        """
        first = self._first_lines(rows)
        if not with_slots or self._row.lines == 1:
            return self._row.decode([self._gather(part, first)])
        # Line by line, so that what is fetched has not to be cut, which copies it.
        lines = first + tf.range(self._row.lines, dtype=first.dtype)[:, tf.newaxis]
        return self._row.decode(tf.unstack(self._gather(part, lines), self._row.lines))

    def write(
        self, part: int, rows: tf.Tensor, values: Sequence[tf.Tensor], update: tf.Tensor
    ) -> list[tf.Operation]:
        """Overwrites rows of a part with all their slots.

        Args:
            rows: Their numbers within the part, `[u]`.
            update: Number of the update that makes them these, scalar int64; rows of a narrower
                dtype are rounded at random, and by it always in the same way.
        """
        first, noise = self._first_lines(rows), None
        if self._row.dtype != "float32":
            noise = draw_noise(tf.shape(values[0]), self._stream + part, update)
        return [
            self._scatter(part, first + k if k else first, line)
            for k, line in enumerate(self._row.encode(values, noise))
        ]

    def stored(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        """Rows of a part with their slots as they are stored, `[u, lines, width]`."""
        return self._gather(part, self._all_lines(rows))

    def set(self, part: int, rows: tf.Tensor, stored: tf.Tensor) -> tf.Operation:
        """Overwrites rows of a part with what `stored` gave of some."""
        lines = tf.reshape(self._all_lines(rows), [-1])
        return self._scatter(part, lines, tf.reshape(stored, [-1, self._row.width]))

    def begin(self, part: int, rows: tf.Tensor, values: tf.Tensor) -> None:
        """Writes initial values of rows of a part, with what their slots start from."""
        self.set(part, rows, self.begun(values))

    def begun(self, values: tf.Tensor) -> tf.Tensor:
        """Rows `[u, dim]` with what their slots start from, as `stored` gives them."""
        single = tf.stack([tf.shape(values)[0], 1])
        slots = [
            tf.fill(single if slot.is_per_row else tf.shape(values), np.float32(slot.start))
            for slot in self._slots
        ]
        return tf.stack(self._row.encode([values, *slots]), 1)

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds of the rows, a slice per ps."""
        lines = self._row.lines
        return [dataclasses.replace(each, lines=lines) for each in self._variable.slices()]

    def _first_lines(self, rows: tf.Tensor) -> tf.Tensor:
        """Where rows of a part begin in its variable, of the shape of `rows`."""
        if self._row.lines == 1:
            return rows
        if self._layout.total_rows * self._row.lines >= 2**31:
            rows = tf.cast(rows, tf.int64)
        return rows * self._row.lines

    def _all_lines(self, rows: tf.Tensor) -> tf.Tensor:
        """Where rows of a part and their slots are in its variable, `[u, lines]`."""
        first = self._first_lines(rows)[:, tf.newaxis]
        return first + tf.range(self._row.lines, dtype=first.dtype)

    def _gather(self, part: int, lines: tf.Tensor) -> tf.Tensor:
        """Lines, `[*lines.shape, width]`."""
        return tf.raw_ops.ResourceGather(
            resource=self._variable.parts[part].handle, indices=lines, dtype=self._row.dtype
        )

    def _scatter(self, part: int, lines: tf.Tensor, values: tf.Tensor) -> tf.Operation:
        """Overwrites lines."""
        return tf.raw_ops.ResourceScatterUpdate(
            resource=self._variable.parts[part].handle, indices=lines, updates=values
        )

    def _line_bounds(self, part: int) -> tuple[int, int]:
        first, end = self._layout.bounds(part)
        return first * self._row.lines, end * self._row.lines

    def _new_part(self, part: int) -> tf.Variable:
        first, end = self._line_bounds(part)
        return self._layout.new_variable(
            [end - first, self._row.width], tf.as_dtype(self._row.dtype)
        )
