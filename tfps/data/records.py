"""Makes batches of a shard's records, inside the closure that trains them."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.data import examples
from tfps.data.feature import Feature
from tfps.data.record_source import RecordSource


def batches(
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
