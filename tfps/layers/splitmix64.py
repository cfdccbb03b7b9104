"""A bijection of 64 bits whose results look random, in a graph."""

import tensorflow as tf

GOLDEN = 0x9E3779B97F4A7C15
# A shift and a factor each; behind them comes a last shift.
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31


def mix(bits: tf.Tensor) -> tf.Tensor:
    """The next number of the generator splitmix64 (Steele, Lea and Flood, OOPSLA 2014).

    Args:
        bits: Its state, uint64 of any shape.
    """
    mixed = bits + tf.constant(GOLDEN, tf.uint64)
    for shift, factor in ROUNDS:
        mixed = _folded(mixed, shift) * tf.constant(factor, tf.uint64)
    return _folded(mixed, LAST_SHIFT)


def _folded(bits: tf.Tensor, shift: int) -> tf.Tensor:
    shifted = tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint64))
    return tf.bitwise.bitwise_xor(bits, shifted)
