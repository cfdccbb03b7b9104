"""What random layers draw from: other numbers in every step, on every device, in every layer."""

import tensorflow as tf

from tfps.layers import splitmix64

_DEVICES = 1 << 16  # more than a step is split over
_LAYER_SHIFT = 48  # behind 2^32 steps of so many devices


def draw_of(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """What a step draws from, `[2]` int64.

    Args:
        seed: That of the shard and the epoch, scalar int64.
        step: Number of the batch in the shard, below 2^32, scalar int64.
    """
    return tf.stack([seed, step * _DEVICES])


def on_device(draw: tf.Tensor, index: int) -> tf.Tensor:
    """What a part of a step draws from, `[2]` int64."""
    return draw + tf.constant([0, index], tf.int64)


def of_layer(draw: tf.Tensor, index: int) -> tf.Tensor:
    """What a layer's generator begins with, `[2]` int64.

    Keras counts up the second number with each draw, and takes both modulo 2^31 - 2: of numbers
    that lie apart only in higher bits, some are the same for it. So all bits are mixed; within one
    seed no two layers of any step begin with the same 64 of them, of which 62 are used.
    """
    seed, position = tf.unstack(tf.bitcast(draw, tf.uint64))
    bits = splitmix64.mix(position + tf.constant(index << _LAYER_SHIFT, tf.uint64))
    bits = splitmix64.mix(seed + bits)
    high = tf.bitwise.right_shift(bits, tf.constant(33, tf.uint64))
    low = tf.bitwise.bitwise_and(bits, tf.constant((1 << 31) - 1, tf.uint64))
    return tf.cast(tf.stack([high, low]), tf.int64)
