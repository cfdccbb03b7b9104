"""A group of tables in an exported model, in the order in which its rows lie on the ps."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfps.export.row_encoding import RowEncoding
from tfps.export.sliced_variables import SlicedVariables, WrittenRun
from tfps.layers.id_check import refuse_outside
from tfps.store.group_layout import GroupLayout
from tfps.store.lookups import rows_for

# Given logical rows `[n]` int64, what is kept of them, `[n, width]` for each tensor of the group.
Gather = Callable[[tf.Tensor], Sequence[tf.Tensor]]


class SlicedGroup(SlicedVariables):
    """Where the rows of a group's tables are in an exported model, which holds none of them yet.

    A SavedModel looks a row up where the training's ps had it: so each ps writes what it holds as
    it lies there, and nobody has to sort rows that no process can hold.

    Attributes:
        variables: Of the SavedModel, `[0, width]` here; restored, they have a row for each of the
            group.
    """

    def __init__(self, layout: GroupLayout, encoding: RowEncoding, number: int):
        """Makes variables without rows.

        Args:
            layout: The group's; on how many ps it lies does not matter.
        """
        self._layout = layout
        self._encoding = encoding
        self._tensors = encoding.tensors(layout.dim)
        rows = [tf.TensorSpec([kept.width], kept.dtype) for kept in self._tensors]
        super().__init__(layout.name, layout.tables, number, rows)

    def look_up(self, table: str, ids: tf.Tensor, gather: Gather | None = None) -> tf.Tensor:
        """The rows of ids, `[*ids.shape, dim]` float32.

        Args:
            ids: Of any shape, int32 or int64.
            gather: Where rows are taken from; None for the variables.
        """
        member, layout = self.tables.index(table), self._layout
        flat = tf.reshape(tf.cast(ids, tf.int64), [-1])
        limits = tf.fill(tf.shape(flat), tf.constant(layout.tables[member].rows, tf.int64))
        fine = refuse_outside(flat, limits, lambda _: tf.constant(table))
        rows = layout.logical_rows(flat + layout.offsets[member] + fine)
        kept = gather(rows) if gather else [tf.gather(each, rows) for each in self.variables]
        return rows_for(ids, self._encoding.decode(kept), layout.dim)

    def write(self, prefix: str, first: int, rows: tf.Tensor) -> WrittenRun:
        """Writes a run of rows as a slice of the variables; to be called where the rows are.

        Args:
            rows: `[count, dim]` float32.
        """
        return self._write_run(prefix, first, self._encoding.encode(rows), self._layout.total_rows)

    def read(
        self, prefix: str, runs: Sequence[WrittenRun], lookups: Sequence[tuple[str, np.ndarray]]
    ) -> Gather:
        """Reads the rows of some lookups out of what was written, each run once at most."""
        members = {name: member for member, name in enumerate(self.tables)}
        asked = [self._layout.rows_of(members[name], ids.ravel()) for name, ids in lookups]
        wanted = np.unique(np.concatenate([np.zeros([0], np.int64), *asked]))
        pieces: list[list[tf.Tensor]] = [[] for _ in self._tensors]
        for run in sorted(runs, key=lambda run: run.first):
            first, end = np.searchsorted(wanted, [run.first, run.first + run.count])
            if first == end:
                continue
            written = self._read_run(prefix, run, self._layout.total_rows)
            for piece, values in zip(pieces, written, strict=True):
                piece.append(tf.gather(values, wanted[first:end] - run.first))
        kept = [
            tf.concat([*piece, tf.zeros([0, tensor.width], tensor.dtype)], 0)
            for piece, tensor in zip(pieces, self._tensors, strict=True)
        ]

        def gather(rows: tf.Tensor) -> list[tf.Tensor]:
            places = tf.searchsorted(tf.constant(wanted), rows)
            return [tf.gather(values, places) for values in kept]

        return gather
