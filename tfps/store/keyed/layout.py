"""Where the rows of tables without a vocabulary lie: each ps has the keys of a range of hashes."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.experiment.task import Table
from tfps.layers.key_options import KeyOptions
from tfps.store.asked_ids import AskedIds, end_to_end
from tfps.store.keyed.hashing import hashes_of, salt_of
from tfps.store.reserved import reserved_variable

# What a ps keeps beside each row: what `RowRecords` says of it, its place in the index (16 bytes a
# bucket, of which between a quarter and 0.6 are in use) and, where rows are lost, in the list of
# free ones.
_BESIDE_BYTES = 24 + 64 + 8
_HASHES = 1 << 64
_DEVIATIONS = 8  # by which the number of hashes in a range may exceed what is expected


@dataclasses.dataclass(frozen=True)
class KeyedLayout:
    """Tables of one dimension, without vocabularies, that share a pull and a push.

    A row belongs to the hash of table and key, which is a bijection for the keys of one table; keys
    of two tables meet with a probability of n²/2^65 for n rows in all. Each ps has the keys whose
    hashes, as int64, lie in a range of its own: all ranges are equal, and in the order of the ps.
    So the rows of all ps together, each sorted by hash, are sorted, on any number of ps.

    On a ps, row numbers are given out as keys come. The first rows, one for each table, are those
    of keys that have none; they never change.
    """

    tables: tuple[Table, ...]
    parts: int
    number: int = 0

    @property
    def name(self) -> str:
        """Name of the group in checkpoints, unique."""
        return f"keys_dim{self.dim}" + (f"_{self.number}" if self.number else "")

    @property
    def dim(self) -> int:
        """Length of a row."""
        return self.tables[0].dim

    @property
    def options(self) -> KeyOptions:
        """Those of its tables; `max_rows` is that of the first."""
        options = self.tables[0].keys
        assert options
        return options

    @property
    def id_dtype(self) -> tf.DType:
        """Dtype of hashes, and of the numbers that a ps gives rows."""
        return tf.int64

    @property
    def quotas(self) -> list[int]:
        """How many rows each table may have on one ps."""
        return [-(-table.rows // self.parts) for table in self.tables]

    @property
    def capacity(self) -> int:
        """Rows that one ps has room for, those of unknown keys included.

        More than may be given out: what was saved on another number of ps is not cut into parts
        that are equal to the row.
        """
        return len(self.tables) + sum(
            quota + _DEVIATIONS * math.isqrt(quota) + _DEVIATIONS for quota in self.quotas
        )

    @property
    def total_rows(self) -> int:
        """Rows that all ps together have room for."""
        return self.capacity * self.parts

    def bounds(self, part: int) -> tuple[int, int]:
        """First row of a part, and the one after its last, of all that there is room for."""
        return self.capacity * part, self.capacity * (part + 1)

    def mark_bytes(self, row_bytes: int) -> int:
        """Bytes that a ps keeps beside each row, whatever its own."""
        return _BESIDE_BYTES

    def new_variable(self, shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
        """Memory for something that each row of a part has, taken as rows come.

        Args:
            shape: `[rows, …]`.
        """
        return reserved_variable(shape, dtype)

    def first_hash(self, part: int) -> int:
        """The least hash, as int64, of a part's keys."""
        return _HASHES * part // self.parts - _HASHES // 2

    def owners(self, hashes: tf.Tensor) -> tf.Tensor:
        """Which part has each hash, `[n]` int32.

        Args:
            hashes: `[n]` int64.
        """
        firsts = [[self.first_hash(part) for part in range(1, self.parts)]]
        sorted_inputs = tf.constant(firsts, tf.int64, [1, self.parts - 1])
        owner = tf.raw_ops.UpperBound(sorted_inputs=sorted_inputs, values=hashes[tf.newaxis])
        return tf.squeeze(owner, 0)

    def ids_in_group(self, members: Sequence[int], asked: Sequence[tf.Tensor]) -> AskedIds:
        """Hashes of the keys of some lookups, end to end, with the tables that are asked."""
        if asked:
            keys, which = end_to_end(asked)
        else:  # tables that this pass of the model does not use
            keys, which = tf.zeros([0], tf.int64), tf.zeros([0], tf.int32)
        tables = tf.gather(tf.constant(members, tf.int32), which)
        salts = tf.gather(tf.constant(np.array(self.salts, np.uint64)), tables)
        times = tf.ones_like(tables) if self.options.counts else None
        return AskedIds(hashes_of(keys, salts), tables, times)

    @property
    def salts(self) -> list[int]:
        """What each table's keys are hashed with."""
        return [salt_of(table.name) for table in self.tables]

    def part_of_hashes(self, hashes: np.ndarray) -> np.ndarray:
        """As `owners`, outside of a graph."""
        firsts = np.array([self.first_hash(part) for part in range(1, self.parts)], np.int64)
        return np.searchsorted(firsts, hashes, side="right")
