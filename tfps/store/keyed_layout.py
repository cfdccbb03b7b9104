"""Where rows of tables without a vocabulary lie: each ps has a range of hashes of keys."""

import dataclasses
import hashlib
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.layers import id_check
from tfps.layers.dynamic_embedding import KeyOptions
from tfps.optimizers.update_rule import Tensors
from tfps.store.group_layout import AskedIds, RowLayout, end_to_end

_WORD = (1 << 64) - 1
_HASHES = 1 << 64
# What a ps keeps for each row: its `RowRecords`, its place in the index (16 bytes a bucket; between
# a quarter and 0.6 of these are in use) and, where rows are lost, in the list of free ones.
_MARK_BYTES = 24 + 64 + 8
_DEVIATIONS = 8  # by which the number of hashes in a range may exceed the expected one


def reserved_variable(shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
    """A variable of a large shape that takes memory page by page, as it is written to."""
    # What was not written to has any value. Linux promises the memory and gives it later, so that a
    # variable grows without a copy, and without another shape that graphs would be traced for
    # again. Call it under the device of the ps.
    variable = tf.Variable(_memory(shape, dtype), trainable=False)

    # In a function the value is gone when it returns. A second reference to it, as somebody may
    # have to the first one still, would have the first write copy all of it.
    @tf.function(autograph=False)
    def reserve() -> None:
        variable.assign(_memory(shape, dtype), read_value=False)

    reserve.get_concrete_function()()
    return variable


def _memory(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    return tf.raw_ops.Empty(shape=list(shape), dtype=dtype, init=False)


def salt_of(table: str) -> int:
    """64 bits that differ between tables, so that equal keys of theirs do."""
    return int.from_bytes(hashlib.blake2b(table.encode(), digest_size=8).digest(), "little")


def hashes_of(keys: tf.Tensor, salt: tf.Tensor) -> tf.Tensor:
    """The hash of each int64 key: within a table, other keys have other hashes."""
    salted = tf.bitwise.bitwise_xor(tf.bitcast(keys, tf.uint64), salt)
    return tf.bitcast(id_check.mix(salted), tf.int64)


def hashes_of_array(keys: np.ndarray, salt: int) -> np.ndarray:
    return id_check.mix_array(keys.view(np.uint64) ^ np.uint64(salt)).view(np.int64)


def keys_of_array(hashes: np.ndarray, salt: int) -> np.ndarray:
    bits = _unfolded(hashes.view(np.uint64), id_check.LAST_SHIFT)
    for shift, factor in reversed(id_check.ROUNDS):
        bits = _unfolded(bits * np.uint64(pow(factor, -1, 1 << 64)), shift)
    return ((bits - np.uint64(id_check.GOLDEN)) ^ np.uint64(salt & _WORD)).view(np.int64)


def _unfolded(bits: np.ndarray, shift: int) -> np.ndarray:
    """Inverts `bits ^ (bits >> shift)`."""
    found = bits
    for _ in range(64 // shift):
        found = bits ^ (found >> np.uint64(shift))
    return found


@dataclasses.dataclass(frozen=True)
class KeyedLayout(RowLayout):
    """Tables of one dimension, without vocabularies, that share a pull and a push.

    A row belongs to the hash of table and key, which is a bijection for the keys of one table; keys
    of two tables meet with a probability of n²/2^65 for n rows in all. Each ps has the keys whose
    hashes, as int64, lie in a range of its own: all ranges are equal, and in the order of the ps.
    So the rows of all ps together, each sorted by hash, are sorted, on any number of ps. On a ps,
    row numbers are assigned as keys come. The first rows, one for each table, are those of keys
    that have none; they never change.
    """

    kind = "keys"

    @property
    def options(self) -> KeyOptions:
        """Those of its tables; `max_rows` is that of the first."""
        options = self.tables[0].keys
        assert options
        return options

    @property
    def id_dtype(self) -> tf.DType:
        return tf.int64

    @property
    def quotas(self) -> list[int]:
        return [-(-table.rows // self.parts) for table in self.tables]

    @property
    def capacity(self) -> int:
        """Rows that one ps has room for, those of unknown keys included."""
        # It is more than the quotas: what was saved on another number of ps is not cut into parts
        # that are equal to the row.
        return len(self.tables) + sum(
            quota + _DEVIATIONS * math.isqrt(quota) + _DEVIATIONS for quota in self.quotas
        )

    @property
    def total_rows(self) -> int:
        return self.capacity * self.parts

    def bounds(self, part: int) -> tuple[int, int]:
        return self.capacity * part, self.capacity * (part + 1)

    def mark_bytes(self, row_bytes: int) -> int:
        return _MARK_BYTES

    def new_variable(self, shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
        return reserved_variable(shape, dtype)

    def first_hash(self, part: int) -> int:
        """The least hash, as int64, of a part's keys."""
        return _HASHES * part // self.parts - _HASHES // 2

    def owners(self, hashes: tf.Tensor) -> tf.Tensor:
        """Which part has each hash, `[n]` int32."""
        firsts = [[self.first_hash(part) for part in range(1, self.parts)]]
        sorted_inputs = tf.constant(firsts, tf.int64, [1, self.parts - 1])
        owner = tf.raw_ops.UpperBound(sorted_inputs=sorted_inputs, values=hashes[tf.newaxis])
        return tf.squeeze(owner, 0)

    def ids_in_group(self, members: Sequence[int], asked: Tensors) -> AskedIds:
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
        return [salt_of(table.name) for table in self.tables]

    def part_of_hashes(self, hashes: np.ndarray) -> np.ndarray:
        """As `owners`, outside of a graph."""
        firsts = np.array([self.first_hash(part) for part in range(1, self.parts)], np.int64)
        return np.searchsorted(firsts, hashes, side="right")
