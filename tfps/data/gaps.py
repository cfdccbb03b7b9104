"""Reads a shard around its gaps, inside a closure, so that what is behind keeps its place."""

import tensorflow as tf

from tfps.data.record_source import RecordSource, untouched


def from_record(source: RecordSource, record: tf.Tensor) -> tf.data.Dataset:
    """The serialized records from one on.

    Args:
        source: The shard's file with its gaps; tensors.
        record: Number of the record in the shard, from 0; scalar int64.

    Returns:
        Dataset of scalar strings, up to the source's end or beyond it; an empty one stands for each
        record in a gap.
    """
    # Most leases have no gaps, and reading in runs costs each record half as much again.
    variant = tf.cond(
        tf.size(source.gaps) > 0,
        lambda: tf.data.experimental.to_variant(_in_runs(source, record)),
        lambda: tf.data.experimental.to_variant(source.from_record(record)),
    )
    return untouched(tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string)))


def are_good(source: RecordSource, record: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Which of some records are in no gap.

    Args:
        source: The shard's file with its gaps; tensors.
        record: The first of them, scalar int64.
        count: How many they are, scalar int64.

    Returns:
        `[count]` bool.
    """
    firsts, ends, _ = _bounds(source)
    numbers = (record + tf.range(count))[:, tf.newaxis]
    return ~tf.reduce_any((numbers >= firsts) & (numbers < ends), 1)


def _in_runs(source: RecordSource, record: tf.Tensor) -> tf.data.Dataset:
    """Reads the file from behind each gap to the next one."""
    number, offset = source.known(record)
    firsts, ends, behind = _bounds(source)
    # A gap may begin before the nearest record of which it is known where it begins.
    reached = ends > number
    firsts = tf.maximum(tf.boolean_mask(firsts, reached), number)
    ends, behind = (tf.boolean_mask(values, reached) for values in (ends, behind))
    starts = tf.concat([[number], ends], 0)
    offsets = tf.concat([[offset], behind], 0)
    good = tf.concat([firsts, [source.end]], 0) - starts
    missing = tf.concat([ends - firsts, [0]], 0)

    def run(offset: tf.Tensor, good: tf.Tensor, missing: tf.Tensor) -> tf.data.Dataset:
        blank = tf.data.Dataset.from_tensors(tf.constant("")).repeat(missing)
        return source.from_byte(offset).take(good).concatenate(blank)

    # A gap may end behind what is needed: then the last run has less than no record.
    runs = tf.data.Dataset.from_tensor_slices((offsets, tf.maximum(good, 0), missing))
    return runs.flat_map(run).skip(record - number)


def _bounds(source: RecordSource) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Of each gap its first record, the one behind, and the byte at which that one begins."""
    first, count, behind = tf.unstack(source.gaps, axis=1)
    return first, first + count, behind
