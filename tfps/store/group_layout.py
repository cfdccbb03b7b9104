"""Where the rows of a group of tables lie: bucket-major, a contiguous run of rows per ps."""

import abc
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.experiment.task import Table
from tfps.layers.id_check import refuse_outside
from tfps.optimizers.update_rule import Tensors
from tfps.store.messages import flat

BUCKETS = 1024
# Of a smaller group a save writes all rows in no time: which of them were touched is not kept.
TRACKED_BYTES = 16 << 20
_ROW_STRIDE = 619  # odd, near BUCKETS / golden ratio: neighbouring ids fall in far-apart buckets
_BLOCK_STRIDE = 377  # turns each block of BUCKETS ids against the one before it
_ROW_STRIDE_INVERSE = pow(_ROW_STRIDE, -1, BUCKETS)


@dataclasses.dataclass(frozen=True)
class RowLayout(abc.ABC):
    """Where the rows of a group of tables of one dimension lie: a run of them on each ps."""

    tables: tuple[Table, ...]
    parts: int
    number: int = 0
    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """Name of the group in checkpoints, unique."""
        return f"{self.kind}_dim{self.dim}" + (f"_{self.number}" if self.number else "")

    @property
    def dim(self) -> int:
        return self.tables[0].dim

    @property
    @abc.abstractmethod
    def id_dtype(self) -> tf.DType:
        """Dtype of rows' numbers as they travel to the ps."""

    @property
    @abc.abstractmethod
    def total_rows(self) -> int: ...

    @abc.abstractmethod
    def bounds(self, part: int) -> tuple[int, int]:
        """First row of a part and the one after its last."""

    @abc.abstractmethod
    def mark_bytes(self, row_bytes: int) -> int:
        """Bytes that a ps keeps for each row in addition to its own."""

    @abc.abstractmethod
    def new_variable(self, shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
        """Memory `[rows, …]` for the rows of a part, under the device of its ps."""


class AskedIds(NamedTuple):
    """What lookups ask of a group of tables."""

    ids: tf.Tensor  # in the group, `[n]`; of tables without a vocabulary hashes of keys
    tables: tf.Tensor | None = None  # index of each one's table, `[n]`, if the id does not show it
    times: tf.Tensor | None = None  # how often each is asked for, `[n]`, where it counts

    @classmethod
    def of_batches(cls, asked: "Sequence[AskedIds]") -> "AskedIds":
        return cls(*map(_joined, zip(*asked, strict=True)))

    def distinct(self) -> "tuple[AskedIds, tf.Tensor]":
        """Each id once, and for every one of these ids its index among those, `[n]` int32."""
        ids, inverse = tf.unique(self.ids)
        if self.tables is None:
            return AskedIds(ids), inverse
        count = tf.size(ids)
        tables = tf.math.unsorted_segment_max(self.tables, inverse, count)
        times = self.times
        if times is not None:
            times = tf.math.unsorted_segment_sum(times, inverse, count)
        return AskedIds(ids, tables, times), inverse


def _joined(pieces: Sequence[tf.Tensor | None]) -> tf.Tensor | None:
    there = [piece for piece in pieces if piece is not None]
    return tf.concat(there, 0) if there else None


def end_to_end(asked: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
    """The ids of one or more lookups end to end, `[n]` int64, and whose they are, `[n]` int32."""
    ids = [flat(tf.cast(some, tf.int64)) for some in asked]
    joined = tf.concat(ids, 0)
    ends = tf.cumsum(tf.stack([tf.size(some) for some in ids]))
    return joined, tf.searchsorted(ends, tf.range(tf.size(joined)), side="right")


@dataclasses.dataclass(frozen=True)
class GroupLayout(RowLayout):
    """Tables of one dimension that share a pull and a push, sharded over the ps.

    A row's id in the group is its table's offset plus its id in the table. With `block = id //
    BUCKETS`, the row lies in bucket `(619 id + 377 block) mod BUCKETS` at position `block`, which
    is a permutation within each block. Hot ids are usually the small ones of every table: the
    strides keep them from meeting in one ps even when all tables have a multiple of BUCKETS rows.
    The logical order is bucket-major. The part of any ps, for any number of ps, is a contiguous
    slice of it, cut at any row: all parts are equal but for one row, and of a group with fewer rows
    than there are ps some hold none.
    """

    kind = "tables"

    @property
    def offsets(self) -> list[int]:
        """Id in the group of each table's row 0."""
        return [0, *itertools.accumulate(table.rows for table in self.tables)][:-1]

    @property
    def bucket_rows(self) -> int:
        """Rows of one bucket, the padding at its end included."""
        return -(-sum(table.rows for table in self.tables) // BUCKETS)

    @property
    def total_rows(self) -> int:
        return BUCKETS * self.bucket_rows

    @property
    def id_dtype(self) -> tf.DType:
        """The narrowest dtype that holds every id in the group."""
        return tf.int32 if self.total_rows < 2**31 else tf.int64

    def mark_bytes(self, row_bytes: int) -> int:
        # 1 where the ps keep which rows were touched.
        return int(self.total_rows * row_bytes >= TRACKED_BYTES)

    def new_variable(self, shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
        return tf.Variable(tf.zeros(shape, dtype), trainable=False)

    def bounds(self, part: int) -> tuple[int, int]:
        return self.total_rows * part // self.parts, self.total_rows * (part + 1) // self.parts

    def buckets(self, part: int) -> tuple[int, int]:
        """First bucket with rows of a part and the one after the last."""
        first, end = self.bounds(part)
        return first // self.bucket_rows, -(-end // self.bucket_rows)

    def locate(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = self.logical_rows(ids)
        ends = tf.constant([[self.bounds(part)[1] for part in range(self.parts)]], ids.dtype)
        owner = tf.raw_ops.UpperBound(sorted_inputs=ends, values=rows[tf.newaxis])
        return rows, tf.squeeze(owner, 0)

    def logical_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """The logical row of ids in the group, of their shape and dtype."""
        block = ids // BUCKETS
        return self._bucket(ids - block * BUCKETS, block) * self.bucket_rows + block

    def rows_of(self, table: int, ids: np.ndarray | None = None) -> np.ndarray:
        """The logical row of ids of one table, `[n]` int64; without ids, of all in order."""
        if ids is None:
            ids = np.arange(self.tables[table].rows, dtype=np.int64)
        ids = self.offsets[table] + ids
        block = ids // BUCKETS
        return self._bucket(ids % BUCKETS, block) * self.bucket_rows + block

    def ids_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The index of each row's table, after the last for padding, and its id there."""
        starts = np.array([*self.offsets, sum(table.rows for table in self.tables)])
        ids = self._ids_of(rows)
        table = np.searchsorted(starts, ids, side="right") - 1
        return table, ids - starts[table]

    def ids_in_group(self, members: Sequence[int], asked: Tensors) -> AskedIds:
        if not members:  # tables that this pass of the model does not use
            return AskedIds(tf.zeros([0], self.id_dtype))
        names = [self.tables[member].name for member in members]
        limits = [self.tables[member].rows for member in members]
        offsets = [self.offsets[member] for member in members]
        joined, which = end_to_end(asked)
        moved = joined + tf.gather(tf.constant(offsets, tf.int64), which)
        rows = tf.gather(tf.constant(limits, tf.int64), which)
        moved += refuse_outside(joined, rows, lambda bad: tf.gather(names, which[bad]))
        return AskedIds(tf.cast(moved, self.id_dtype))

    def runs_of(
        self, table: int, part: int, largest: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """A table's ids with rows in a part, and their rows there, in runs of at most `largest`."""
        # In every bucket the rows of a table are neighbours: all runs of all parts together take
        # time for the table's rows, however many parts there are.
        first, end = self.bounds(part)
        bucket, bucket_end = self.buckets(part)
        offset, count = self.offsets[table], self.tables[table].rows
        block = offset // BUCKETS
        blocks = -(-(offset + count) // BUCKETS) - block
        places = (bucket_end - bucket) * blocks
        for start in range(0, places, largest):
            place = np.arange(start, min(start + largest, places), dtype=np.int64)
            rows = (bucket + place // blocks) * self.bucket_rows + block + place % blocks
            ids = self._ids_of(rows) - offset
            mine = (rows >= first) & (rows < end) & (ids >= 0) & (ids < count)
            yield ids[mine], rows[mine] - first

    def first_rows(self, offset: tf.Tensor, buckets: tf.Tensor) -> tf.Tensor:
        """In each bucket, the first row whose id is at least `offset`, or the bucket's end."""
        rows = buckets * self.bucket_rows + offset // BUCKETS
        return rows + tf.cast(self._ids_of(rows) < offset, tf.int64)

    def table_of_rows(self, bucket: tf.Tensor) -> tf.Tensor:
        """For every row of one bucket, the index of its table, `[bucket_rows]` int32."""
        first = bucket * self.bucket_rows
        rows = tf.range(first, first + self.bucket_rows)
        return self.table_of(self._ids_of(rows))

    def table_of(self, ids: tf.Tensor) -> tf.Tensor:
        """The index of the table of ids in the group, of their shape, int32."""
        starts = tf.constant(self.offsets[1:], ids.dtype)
        return tf.searchsorted(starts, ids, side="right")

    def table_of_numbers(self, part: int, numbers: tf.Tensor) -> tf.Tensor:
        """The index of the table of rows of a part, of their shape, int32."""
        return self.table_of(self._ids_of(tf.cast(numbers, tf.int64) + self.bounds(part)[0]))

    def _bucket(self, remainder: Any, block: Any) -> Any:
        # Reduced before the product, so that int32 never overflows.
        return (remainder * _ROW_STRIDE + block % BUCKETS * _BLOCK_STRIDE) % BUCKETS

    def _ids_of(self, rows: Any) -> Any:
        """Ids in the group of logical rows, int64; of padding, one that is no table's."""
        bucket, block = rows // self.bucket_rows, rows % self.bucket_rows
        remainder = (bucket - _BLOCK_STRIDE * block) * _ROW_STRIDE_INVERSE % BUCKETS
        return block * BUCKETS + remainder
