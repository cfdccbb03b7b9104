"""Rounds values at random to bfloat16, so that they stay what they are on average."""

import tensorflow as tf


def draw_noise(shape: tf.Tensor, stream: int, number: tf.Tensor) -> tf.Tensor:
    """What values are rounded by; the same for the same stream and number.

    Args:
        shape: Of the values, int32.
        number: Of an update of the variable, scalar int64.

    Returns:
        Evenly distributed from 0 to 65,535, int32.
    """
    size = tf.reduce_prod(shape)
    seed = tf.stack([tf.constant(stream, tf.int64), number])
    # To draw bits costs more than all else: of 32 each half is the noise of one value.
    drawn = tf.random.stateless_uniform(
        [(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32
    )
    halves = tf.reshape(tf.bitcast(drawn, tf.uint16), [-1])[:size]
    return tf.cast(tf.reshape(halves, shape), tf.int32)


def round_at_random(values: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """One of the two bfloat16 values between which each value lies, the nearer the likelier.

    Rounded to the nearest, a value that moves in steps below half of its last bit would never move;
    rounded at random it moves as far on average (Gupta et al., 2015, "Deep Learning with Limited
    Numerical Precision"). What bfloat16 has is given back as it is. Beyond its greatest value, of
    3.39e38, there is infinity alone, as for values that are rounded to the nearest.

    Args:
        values: Of any shape, float32.
    """
    # A bfloat16 is the upper half of a float32, which is the second one in memory: noise in the
    # lower half carries over into it as often as that half says.
    moved = tf.bitcast(values, tf.int32) + noise
    return tf.bitcast(moved, tf.bfloat16)[..., 1]
