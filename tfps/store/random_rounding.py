"""Rounds values at random to bfloat16, so that they stay what they are on average."""

import tensorflow as tf

_LOST_BITS = 16  # of a float32 that is made a bfloat16
_KEPT = -(1 << _LOST_BITS)  # all bits but these


def draw_noise(shape: tf.Tensor, stream: int, number: tf.Tensor) -> tf.Tensor:
    """What values are rounded by; the same for the same stream and number.

    Args:
        shape: Of the values.
        stream: Tells variables apart.
        number: Of an update of the variable, scalar int64.

    Returns:
        Evenly distributed from 0 to 65,535, int32.
    """
    seed = tf.stack([tf.constant(stream, tf.int64), number])
    bits = tf.random.stateless_uniform(shape, seed, minval=None, maxval=None, dtype=tf.int32)
    return tf.bitwise.bitwise_and(bits, (1 << _LOST_BITS) - 1)


def round_at_random(values: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """One of the two bfloat16 values between which each value lies, the nearer the likelier.

    Rounded to the nearest, a value that moves in steps below half of its last bit would never move;
    rounded at random it moves as far on average (Gupta et al., 2015, "Deep Learning with Limited
    Numerical Precision"). What bfloat16 has is given back as it is, and what is finite stays so.

    Args:
        values: Of any shape, float32.
        noise: What `draw_noise` gave for their shape.

    Returns:
        Of their shape, bfloat16.
    """
    bits = tf.bitcast(values, tf.int32)
    up = tf.bitcast(tf.bitwise.bitwise_and(bits + noise, _KEPT), tf.float32)
    down = tf.bitcast(tf.bitwise.bitwise_and(bits, _KEPT), tf.float32)
    # Beyond bfloat16's greatest value there is infinity alone; and a NaN stays what it is.
    rounded = tf.where(tf.math.is_finite(up), up, tf.where(tf.math.is_nan(values), values, down))
    return tf.cast(rounded, tf.bfloat16)
