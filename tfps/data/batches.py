"""Makes the batches of a shard that holds bad records, inside the closure that trains them.

What cannot be read fails no closure here: ClusterCoordinator would cancel those of all workers. The
batch in question is left out instead, which its number tells, and the chief finds out why.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.data import examples, record_source
from tfps.data.feature import Feature
from tfps.data.record_source import RecordSource


def read_batches(
    source: RecordSource,
    features: Sequence[Feature],
    labels: Sequence[Feature],
    batch_size: int,
    block_batches: int = 0,
    seed: tf.Tensor | None = None,
    part: tuple[tf.Tensor, tf.Tensor] | None = None,
    empty: int = 0,
    parse_threads: int = 1,
) -> tf.data.Dataset:
    """The batches of one shard, the last of them as small as what is left.

    The order depends on the seed alone, so that a lease begun again goes on where it was.

    Args:
        source: The shard's file, and where its records begin.
        features: What a record holds.
        labels: What else it holds.
        batch_size: Records per batch.
        block_batches: Batches of a block, within which records are shuffled; 0 keeps the shard's
            order.
        seed: Seed of the order, scalar int64.
        part: The first batch and the one after the last, scalar int64; None for all. Nothing is
            read before the last known offset at or before the first batch, or before its block.
        empty: Batches without records that follow.
        parse_threads: Batches parsed at the same time; their order stays the same.

    Returns:
        Dataset of (features, labels): dicts by name, each value with a leading batch dimension.
    """
    first, end = part or (0, None)
    if block_batches:
        # Whole blocks are shuffled at once: a fraction of the cost of Dataset.shuffle, which moves
        # one record at a time and takes no seed that is a tensor.
        block = first // block_batches
        dataset = source.from_record(block * block_batches * batch_size)
        dataset = dataset.batch(block_batches * batch_size).enumerate(block)
        if end is not None:
            dataset = dataset.take(-(-end // block_batches) - block)
        dataset = dataset.map(
            lambda block, serialized: tf.random.experimental.stateless_shuffle(
                serialized, tf.stack([seed, block])
            )
        )
        # While a block is trained the next one is read.
        dataset = dataset.prefetch(1).rebatch(batch_size).skip(first - block * block_batches)
    else:
        dataset = source.from_record(first * batch_size).batch(batch_size)
    if end is not None:
        dataset = dataset.take(end - first)
    if empty:
        dataset = dataset.concatenate(
            tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)).repeat(empty)
        )
    dataset = dataset.map(
        lambda serialized: examples.parse(serialized, features, labels),
        num_parallel_calls=parse_threads,
        deterministic=True,
    )
    return dataset.prefetch(1 + parse_threads)


def readable_batches(
    source: RecordSource,
    features: Sequence[Feature],
    labels: Sequence[Feature],
    batch_size: int,
    block_batches: int,
    seed: tf.Tensor,
    part: tuple[tf.Tensor, tf.Tensor],
    parse_threads: int = 1,
) -> tf.data.Dataset:
    """Some batches of a shard: those of `read_batches`, less the records in the source's gaps.

    Args:
        source: The shard's file, where its records begin, and its gaps; its `end` is that of the
            block of the last batch.
        features: What a record holds.
        labels: What else it holds.
        batch_size: Records per batch, those in gaps included.
        block_batches: Batches of a block, within which records are shuffled; 0 keeps the shard's
            order.
        seed: Seed of the order, scalar int64.
        part: The first batch and the one after the last, scalar int64.
        parse_threads: Batches parsed at the same time; their order stays the same.

    Returns:
        Endless dataset of (number, (bad, features, labels)): a batch's number in the shard and how
        many of its records are in gaps, scalar int64; dicts by name of what the others hold, each
        value with a leading batch dimension, which may be 0. After the first batch that cannot be
        read, no number is what it would have been; behind the last, batches without records have
        the number -1.
    """
    first, end = part
    in_block = max(1, block_batches)
    size, block = in_block * batch_size, first // in_block

    def place(number: tf.Tensor, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        record = number * size
        count = tf.minimum(source.end - record, size)
        # Fails where the file ends too early, which TensorFlow takes for its end.
        both = tf.reshape(serialized, [count]), record_source.are_good(source, record, count)
        if not block_batches:
            return both
        seeds = tf.stack([seed, number])
        shuffled = [tf.random.experimental.stateless_shuffle(values, seeds) for values in both]
        return shuffled[0], shuffled[1]

    def parse(serialized: tf.Tensor, good: tf.Tensor) -> tuple[tf.Tensor, Any, Any]:
        kept = tf.boolean_mask(serialized, good)
        inputs, truth = examples.parse(kept, features, labels)
        inside = _are_inside({**inputs, **truth}, (*features, *labels))
        # Not tf.debugging.Assert, whose branches are functions that every closure has to set up.
        with tf.control_dependencies([tf.raw_ops.Assert(condition=inside, data=["an id"])]):
            bad = tf.size(good, tf.int64) - tf.size(kept, tf.int64)
        return bad, inputs, truth

    dataset = record_source.from_record(source, block * size).batch(size).enumerate(block)
    # While a block is trained the next one is read.
    dataset = dataset.take(-(-end // in_block) - block).map(place).prefetch(1)
    dataset = dataset.rebatch(batch_size).skip(first - block * in_block).take(end - first)
    dataset = dataset.map(parse, num_parallel_calls=parse_threads, deterministic=True)
    # An element that fails uses up a number, so that an endless failure comes to an end.
    read = tf.data.Dataset.zip((tf.data.Dataset.range(first, end), dataset))
    minus_one, zero = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
    empty = examples.parse(tf.zeros([0], tf.string), features, labels)
    behind = tf.data.Dataset.from_tensors((minus_one, (zero, *empty))).repeat()
    return read.ignore_errors(log_warning=True).concatenate(behind).prefetch(1 + parse_threads)


def _are_inside(
    values: Mapping[str, tf.Tensor | tf.RaggedTensor], features: Sequence[Feature]
) -> tf.Tensor:
    """Whether every id lies in its vocabulary, scalar bool."""
    bounded = [feature for feature in features if feature.vocabulary_size]
    ids = {feature: values[feature.name] for feature in bounded}
    checked = [
        (ids[feature].flat_values if feature.is_ragged else ids[feature], feature.vocabulary_size)
        for feature in bounded
        if feature.shape
    ]
    scalars = [feature for feature in bounded if not feature.shape]
    if scalars:  # All at once: there may be many, of few ids each.
        limits = tf.constant([feature.vocabulary_size for feature in scalars], tf.uint64)
        checked.append((tf.stack([ids[feature] for feature in scalars], 1), limits))
    # As unsigned numbers, ids below 0 are large ones.
    inside = [tf.bitcast(some, tf.uint64) < tf.cast(limit, tf.uint64) for some, limit in checked]
    return tf.reduce_all(tf.stack([tf.constant(True), *map(tf.reduce_all, inside)]))
