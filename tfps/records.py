"""Reads the records of one lease, inside the closure that trains it."""

from collections.abc import Sequence

import tensorflow as tf

from tfps import examples
from tfps.feature import Feature


def batches(
    path: tf.Tensor,
    features: Sequence[Feature],
    labels: Sequence[Feature],
    batch_size: int,
    shuffle_buffer: int = 0,
    seed: tf.Tensor | None = None,
    part: tuple[tf.Tensor, tf.Tensor] | None = None,
    empty: int = 0,
) -> tf.data.Dataset:
    """The batches of one shard, the last of them as small as what is left.

    The order depends on the seed alone, so that a lease begun again goes on where it was.

    Args:
        path: Path of the shard, scalar string.
        features: What a record holds.
        labels: What else it holds.
        batch_size: Records per batch.
        shuffle_buffer: Records of a block, within which they are shuffled, rounded up to whole
            batches; 0 keeps the shard's order.
        seed: Seed of the order, scalar int64.
        part: The first batch and the one after the last, scalar int64; None for all.
        empty: Batches without records that follow.

    Returns:
        Dataset of (features, labels): dicts by name, each value with a leading batch dimension.
    """
    dataset = tf.data.TFRecordDataset(path, buffer_size=8 << 20)
    first, count = (part[0], part[1] - part[0]) if part else (0, -1)
    if shuffle_buffer:
        # Whole blocks are shuffled at once: a fraction of the cost of Dataset.shuffle, which moves
        # one record at a time and takes no seed that is a tensor.
        block_batches = -(-shuffle_buffer // batch_size)
        block = first // block_batches
        dataset = dataset.skip(block * block_batches * batch_size)
        dataset = dataset.batch(block_batches * batch_size).enumerate(block)
        dataset = dataset.map(
            lambda block, serialized: tf.random.experimental.stateless_shuffle(
                serialized, tf.stack([seed, block])
            )
        )
        dataset = dataset.rebatch(batch_size).skip(first - block * block_batches)
    else:
        dataset = dataset.skip(first * batch_size).batch(batch_size)
    dataset = dataset.take(count)
    if empty:
        dataset = dataset.concatenate(
            tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)).repeat(empty)
        )
    dataset = dataset.map(
        lambda serialized: examples.parse(serialized, features, labels),
        num_parallel_calls=1,
        deterministic=True,
    )
    # Nothing is left to tune, and keeping count for it doubles the cost of reading a record.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(2).with_options(options)
