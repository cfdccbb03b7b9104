"""What lookups ask of a group of tables, end to end."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class AskedIds(NamedTuple):
    """What lookups ask of a group of tables.

    Attributes:
        ids: Ids in the group, end to end, `[n]`; of tables without a vocabulary hashes of keys.
        tables: The index in the group of each one's table, `[n]` int32, where the id does not tell.
        times: How often each is asked for, `[n]` int32; None where it does not count.
    """

    ids: tf.Tensor
    tables: tf.Tensor | None = None
    times: tf.Tensor | None = None

    @classmethod
    def of_batches(cls, asked: "Sequence[AskedIds]") -> "AskedIds":
        """Those of several batches, end to end."""
        return cls(*map(_joined, zip(*asked, strict=True)))

    def distinct(self) -> "tuple[AskedIds, tf.Tensor]":
        """Each id once, and for every one of these ids where it is among those, `[n]` int32."""
        if self.tables is None:
            ids, inverse = tf.unique(self.ids)
            return AskedIds(ids), inverse
        ids, inverse = tf.unique(self.ids)
        count = tf.size(ids)
        tables = tf.math.unsorted_segment_max(self.tables, inverse, count)
        times = self.times
        if times is not None:
            times = tf.math.unsorted_segment_sum(times, inverse, count)
        return AskedIds(ids, tables, times), inverse


def _joined(pieces: Sequence[tf.Tensor | None]) -> tf.Tensor | None:
    there = [piece for piece in pieces if piece is not None]
    return tf.concat(there, 0) if there else None


def end_to_end(asked: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """The ids of some lookups, end to end.

    Args:
        asked: Ids of each lookup, of any integer dtype and shape; at least one.

    Returns:
        The ids, `[n]` int64, and which lookup each is of, `[n]` int32.
    """
    ids = [_flat(tf.cast(some, tf.int64)) for some in asked]
    joined = tf.concat(ids, 0)
    ends = tf.cumsum(tf.stack([tf.size(some) for some in ids]))
    return joined, tf.searchsorted(ends, tf.range(tf.size(joined)), side="right")


def _flat(ids: tf.Tensor) -> tf.Tensor:
    # An operation per lookup counts: each is in all of a closure's unrolled steps.
    return ids if ids.shape.rank == 1 else tf.reshape(ids, [-1])
