"""What a checkpoint holds, read by one process: variables whole, tables some rows after others."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.checkpoint import reader
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.experiment.task import Table
from tfps.store.group_layout import GroupLayout
from tfps.store.partitioned_variable import TensorSlice, rows_at_once
from tfps.store.stored_row import StoredRow

_DEVICE = "/device:CPU:0"


def read_variables(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Reads all dense parameters, and the state, such as BatchNorm statistics.

    Returns:
        Values by the paths of their variables, float32.
    """
    found: dict[str, np.ndarray] = {}
    for tensor in ("dense", "state"):
        if shapes := checkpoint.signature[tensor]:
            total = sum(math.prod(shape) for shape in shapes.values())
            flat = _slice(tensor, (total,), 0, total, tf.float32)
            reader.read(checkpoint, [flat])
            found |= _cut(flat.variable.numpy(), shapes)
    return found


@dataclasses.dataclass(frozen=True)
class SavedRows:
    """Some rows of a table, as their last updates left them.

    Attributes:
        ids: Of the rows, `[n]` int64.
        lines: The rows, each with its slots behind it, `[n, size]` of `StoredRow`, float32.
        last_updates: How many updates there had been after each row's last one, `[n]` int32; None
            where rows do not change without an update of their own.
    """

    table: str
    ids: np.ndarray
    lines: np.ndarray
    last_updates: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class SavedGroup:
    """A group of tables in a checkpoint.

    Attributes:
        catches_up: Whether rows make up for updates that they were no part of, so that it is kept
            when each was updated last.
        optimizer: How they do; None where the checkpoint does not say.
    """

    name: str
    layout: GroupLayout
    row: StoredRow
    catches_up: bool
    optimizer: Mapping[str, Any] | None

    @classmethod
    def all_in(cls, checkpoint: Checkpoint) -> list["SavedGroup"]:
        """The groups of a checkpoint."""
        zeros, found = keras.initializers.Zeros(), []
        tables = {
            name: Table(name, rows, dim, zeros)
            for name, (rows, dim) in checkpoint.signature["tables"].items()
            if rows is not None  # one without a vocabulary; see `SavedKeyedGroup`
        }
        for name, part in checkpoint.signature.items():
            if name.startswith("tables_dim"):
                layout = GroupLayout(tuple(tables[each] for each in part["tables"]), parts=1)
                row = StoredRow.of_signature(layout.dim, part)
                optimizer = checkpoint.optimizers.get(name)
                found.append(cls(name, layout, row, "row_updates" in part, optimizer))
        return found

    @property
    def tables(self) -> list[str]:
        """Names of its tables."""
        return [table.name for table in self.layout.tables]

    def read(self, checkpoint: Checkpoint, tables: Collection[str]) -> Iterator[SavedRows]:
        """Reads tables, all of them in one pass over the group, a chunk of which is held at a time.

        Args:
            tables: Names of the wanted ones; others may be among them.

        Yields:
            Rows of one table; all of them together are all rows of all wanted tables.
        """
        wanted = [index for index, name in enumerate(self.tables) if name in tables]
        for first, count in self.runs() if wanted else ():
            values, last_updates = self.read_run(checkpoint, first, count)
            table, ids = self.layout.ids_of(np.arange(first, first + count, dtype=np.int64))
            for index in wanted:
                mine = np.flatnonzero(table == index)
                if not len(mine):
                    continue
                last = None if last_updates is None else last_updates[mine]
                yield SavedRows(self.tables[index], ids[mine], values[mine], last)

    def runs(self) -> Iterator[tuple[int, int]]:
        """First row and number of rows of each run in which the group is read, padding included."""
        total = self.layout.total_rows
        # TensorFlow looks through all slices of a tensor whenever it reads one.
        stride = rows_at_once(self.row.float_bytes, total)
        for first in range(0, total, stride):
            yield first, min(stride, total - first)

    def read_run(
        self, checkpoint: Checkpoint, first: int, count: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Reads a run of rows with their slots, and when each was updated last where that is kept.

        Returns:
            `[count, size]` of `StoredRow`, float32, and `[count]` int32 or None.
        """
        total, lines = self.layout.total_rows, self.row.lines
        shape, dtype = (total * lines, self.row.width), tf.as_dtype(self.row.dtype)
        rows = _slice(self.name, shape, first * lines, count * lines, dtype)
        slices = [dataclasses.replace(rows, lines=lines)]
        if self.catches_up:
            slices.append(_slice(f"{self.name}/last_update", (total,), first, count, tf.int32))
        reader.read(checkpoint, slices)
        stored, *last_updates = (slice_.variable for slice_ in slices)
        values = self.row.decode_flat(tf.reshape(stored, [count, lines, self.row.width]))
        return values.numpy(), last_updates[0].numpy() if last_updates else None


def _slice(
    name: str, shape: tuple[int, ...], first: int, count: int, dtype: tf.DType
) -> TensorSlice:
    """A run of rows of a tensor, with a variable of this process to hold it."""
    with tf.device(_DEVICE):
        variable = tf.Variable(tf.zeros([count, *shape[1:]], dtype), trainable=False)
    return TensorSlice(name, shape, first, count, _DEVICE, variable)


def _cut(flat: np.ndarray, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Variables, by path, that lie end to end."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    slices = np.split(flat, ends[:-1])
    return {
        path: slice_.reshape(shape)
        for slice_, (path, shape) in zip(slices, shapes.items(), strict=True)
    }
