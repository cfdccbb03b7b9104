"""Variables of an exported model without rows, and the runs of rows that belong in them."""

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
    """One of the tensors that hold the rows of a group."""

    dtype: tf.DType
    width: int


@dataclasses.dataclass(frozen=True)
class RowEncoding:
    """Rows as float32 or bfloat16, or as int8 with one float32 scale for each row."""

    dtype: str = FLOAT32

    @property
    def is_exact(self) -> bool:
        return self.dtype == FLOAT32

    def tensors(self, dim: int) -> list[RowTensor]:
        """The tensors that hold rows of `dim` values."""
        values = RowTensor(tf.as_dtype(self.dtype), dim)
        return [values, RowTensor(tf.float32, 1)] if self.dtype == INT8 else [values]

    def encode(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """Those tensors, `[n, width]`, of rows `[n, dim]` float32."""
        if self.dtype != INT8:
            return [tf.cast(rows, self.dtype)]
        scales = tf.reduce_max(tf.abs(rows), 1, keepdims=True) / _LARGEST
        # Of a row of zeros, or of numbers too small for a scale, zeros are kept.
        whole = tf.round(tf.math.divide_no_nan(rows, scales))
        return [tf.cast(tf.clip_by_value(whole, -_LARGEST, _LARGEST), tf.int8), scales]

    def decode(self, kept: Sequence[tf.Tensor]) -> tf.Tensor:
        """The rows `[n, dim]` float32 from the output of `encode`."""
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
    """The variables of a group of tables in a SavedModel; each process writes a run of them.

    They have no rows here, and all once they are restored. `resources` find rows and are not
    written.
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
        """Their names in the SavedModel's checkpoint, if `ServingModel` has them."""
        return [
            f"{SLICES}/{self._number}/{k}/.ATTRIBUTES/VARIABLE_VALUE"
            for k in range(len(self.variables))
        ]

    def _write_run(
        self, prefix: str, first: int, values: Sequence[tf.Tensor], total: int
    ) -> WrittenRun:
        """Writes rows `[count, *shape]` as a slice of each variable; where the rows are."""
        run = WrittenRun(f"{prefix}.slice-{self._number}-{first}", first, int(values[0].shape[0]))
        save_now(run.prefix, self.names, self._slices(run, total), values)
        return run

    def _read_run(self, prefix: str, run: WrittenRun, total: int) -> list[tf.Tensor]:
        return list(
            tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=self.names,
                shape_and_slices=self._slices(run, total),
                dtypes=[row.dtype for row in self._row_specs],
            )
        )

    def _slices(self, run: WrittenRun, total: int) -> list[str]:
        """A run of each variable, for `tf.raw_ops.SaveV2` and `RestoreV2`."""
        found = []
        for row in self._row_specs:
            shape = " ".join(map(str, [total, *row.shape]))
            whole = ":-" * row.shape.rank  # of a row
            found.append(f"{shape} {run.first},{run.count}{whole}")
        return found


class SlicedGroup(SlicedVariables):
    """The places of a group's rows in an exported model that holds none of them yet.

    A SavedModel looks a row up where the training's ps had it: each ps writes its rows as they lie,
    and nobody sorts rows that fit in no process. The variables are `[0, width]` here, and have all
    rows of the group once they are restored.
    """

    def __init__(self, layout: GroupLayout, encoding: RowEncoding, number: int):
        self._layout = layout
        self._encoding = encoding
        self._tensors = encoding.tensors(layout.dim)
        rows = [tf.TensorSpec([kept.width], kept.dtype) for kept in self._tensors]
        super().__init__(layout.name, layout.tables, number, rows)

    def look_up(self, table: str, ids: tf.Tensor, gather: Gather | None = None) -> tf.Tensor:
        """The rows of ids, `[*ids.shape, dim]` float32, from `gather` or else the variables."""
        member, layout = self.tables.index(table), self._layout
        flat = tf.reshape(tf.cast(ids, tf.int64), [-1])
        limits = tf.fill(tf.shape(flat), tf.constant(layout.tables[member].rows, tf.int64))
        fine = refuse_outside(flat, limits, lambda _: tf.constant(table))
        rows = layout.logical_rows(flat + layout.offsets[member] + fine)
        kept = gather(rows) if gather else [tf.gather(each, rows) for each in self.variables]
        return rows_for(ids, self._encoding.decode(kept), layout.dim)

    def write(self, prefix: str, first: int, rows: tf.Tensor) -> WrittenRun:
        """Writes rows `[count, dim]` float32 as a slice of the variables; where the rows are."""
        return self._write_run(prefix, first, self._encoding.encode(rows), self._layout.total_rows)

    def read(
        self, prefix: str, runs: Sequence[WrittenRun], lookups: Sequence[tuple[str, np.ndarray]]
    ) -> Gather:
        """Reads the rows of some lookups from the files, each run at most once."""
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
