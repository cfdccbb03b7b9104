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
    skip: tf.Tensor | None = None,
) -> tf.data.Dataset:
    """The batches of one shard, the last of them as small as what is left.

    The order depends on the seed alone, so that a lease begun again goes on where it was.

    Args:
        path: Path of the shard, scalar string.
        features: What a record holds.
        labels: What else it holds.
        batch_size: Records per batch.
        shuffle_buffer: Records of a block, within which they are shuffled; 0 keeps the shard's
            order.
        seed: Seed of the order, scalar int64.
        skip: Batches to leave out at the beginning, scalar int64.

    Returns:
        Dataset of (features, labels): dicts by name, each value with a leading batch dimension.
    """
    dataset = tf.data.TFRecordDataset(path, buffer_size=8 << 20)
    if shuffle_buffer:
        # Whole blocks are shuffled at once: a fraction of the cost of Dataset.shuffle, which moves
        # one record at a time and takes no seed that is a tensor.
        dataset = dataset.batch(shuffle_buffer).enumerate()
        dataset = dataset.map(
            lambda block, serialized: tf.random.experimental.stateless_shuffle(
                serialized, tf.stack([seed, block])
            )
        )
        dataset = dataset.rebatch(batch_size)
    else:
        dataset = dataset.batch(batch_size)
    if skip is not None:
        dataset = dataset.skip(skip)
    dataset = dataset.map(
        lambda serialized: examples.parse(serialized, features, labels),
        num_parallel_calls=1,
        deterministic=True,
    )
    return dataset.prefetch(2)
