"""Ids of tables as ids of their group."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.layers.id_check import refuse_outside
from tfps.store.layout import GroupLayout


def ids_in_group(
    layout: GroupLayout, members: Sequence[int], asked: Sequence[tf.Tensor]
) -> tf.Tensor:
    """The ids in a group of ids in its tables, end to end, `[n]`.

    Args:
        layout: The group's.
        members: For each tensor, the index in the group of the table that it asks.
        asked: Ids, of any integer dtype and shape.
    """
    if not members:  # tables that this pass of the model does not use
        return tf.zeros([0], layout.id_dtype)
    names = [layout.tables[member].name for member in members]
    limits = [layout.tables[member].rows for member in members]
    offsets = [layout.offsets[member] for member in members]
    ids = [_flat(tf.cast(part, tf.int64)) for part in asked]
    joined = tf.concat(ids, 0)
    ends = tf.cumsum(tf.stack([tf.size(part) for part in ids]))
    which = tf.searchsorted(ends, tf.range(tf.size(joined)), side="right")
    moved = joined + tf.gather(tf.constant(offsets, tf.int64), which)
    rows = tf.gather(tf.constant(limits, tf.int64), which)
    moved += refuse_outside(joined, rows, lambda bad: tf.gather(names, which[bad]))
    return tf.cast(moved, layout.id_dtype)


def _flat(ids: tf.Tensor) -> tf.Tensor:
    # An operation per lookup counts: each is in all of a closure's unrolled steps.
    return ids if ids.shape.rank == 1 else tf.reshape(ids, [-1])
