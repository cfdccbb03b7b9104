"""Variables of an exported model that have no rows yet, and runs of rows that belong into them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.experiment.experiment import FLOAT32, INT8
from tfps.experiment.task import Table
from tfps.export.exported_files import SLICES
from tfps.layers.id_check import refuse_outside
from tfps.store.exchange import rows_for
from tfps.store.group_layout import GroupLayout
from tfps.store.partitioned_variable import save_now

_LARGEST = 127.0  # of an int8, so that zero stays zero
# Given logical rows `[n]` int64, what is kept of them, `[n, width]` for each tensor of the group.
Gather = Callable[[tf.Tensor], Sequence[tf.Tensor]]


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


@dataclasses.dataclass(frozen=True)
class WrittenRun:
    """Rows of a group that one process has written."""

    prefix: str
    first: int
    count: int


class SlicedVariables:
    """What a group of tables has in a SavedModel, which each process writes a run of.

    Attributes:
        variables: Of the SavedModel, without rows here; restored, they have all.
        resources: What else the SavedModel needs to find rows, without being written.
    """

    def __init__(
        self, name: str, tables: Sequence[Table], number: int, rows: Sequence[tf.TensorSpec]
    ):
        self._number = number
        self._row_specs = list(rows)
        self.tables = [table.name for table in tables]
        self.resources: list[tf.lookup.StaticHashTable] = []
        self.variables = [
            tf.Variable(
                tf.zeros([0, *row.shape], row.dtype),
                trainable=False,
                shape=tf.TensorShape([None, *row.shape]),
                name=name,
            )
            for row in self._row_specs
        ]

    @property
    def names(self) -> list[str]:
        """Names of the variables in the SavedModel's checkpoint, if `ServingModel` has them."""
        return [
            f"{SLICES}/{self._number}/{k}/.ATTRIBUTES/VARIABLE_VALUE"
            for k in range(len(self.variables))
        ]

    def _write_run(
        self, prefix: str, first: int, values: Sequence[tf.Tensor], total: int
    ) -> WrittenRun:
        """Writes a run of rows as a slice of each variable; to be called where the rows are.

        Args:
            values: Rows of each variable, `[count, *shape]`.
        """
        run = WrittenRun(f"{prefix}.slice-{self._number}-{first}", first, int(values[0].shape[0]))
        save_now(run.prefix, self.names, self._slices(run, total), values)
        return run

    def _read_run(self, prefix: str, run: WrittenRun, total: int) -> list[tf.Tensor]:
        """Reads a run of each variable."""
        return list(
            tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=self.names,
                shape_and_slices=self._slices(run, total),
                dtypes=[row.dtype for row in self._row_specs],
            )
        )

    def _slices(self, run: WrittenRun, total: int) -> list[str]:
        """A run of each variable, as `tf.raw_ops.SaveV2` and `RestoreV2` want it."""
        found = []
        for row in self._row_specs:
            shape = " ".join(map(str, [total, *row.shape]))
            whole = ":-" * row.shape.rank  # of a row
            found.append(f"{shape} {run.first},{run.count}{whole}")
        return found


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
