"""Refuses ids for which a table has no row."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

GOLDEN = 0x9E3779B97F4A7C15
# A shift and a factor each; behind them comes a last shift.
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31
# What a refusal says, by which the chief knows it again in the error of a closure.
OUTSIDE_TABLE = "is outside table"
WEIGHTS_MISSING = "has not as many weights as ids"


def mix(bits: tf.Tensor) -> tf.Tensor:
    """The next number of the generator splitmix64 (Steele, Lea and Flood, OOPSLA 2014), uint64."""
    mixed = bits + tf.constant(GOLDEN, tf.uint64)
    for shift, factor in ROUNDS:
        mixed = _folded(mixed, shift) * tf.constant(factor, tf.uint64)
    return _folded(mixed, LAST_SHIFT)


def mix_array(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The same of an array."""
    mixed = bits + np.uint64(GOLDEN)
    for shift, factor in ROUNDS:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(LAST_SHIFT))


def _folded(bits: tf.Tensor, shift: int) -> tf.Tensor:
    shifted = tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint64))
    return tf.bitwise.bitwise_xor(bits, shifted)


def fail_unless(fine: tf.Tensor, message: Callable[[], tf.Tensor]) -> tf.Tensor:
    """0, scalar int64, for the caller to add to values that depend on the scalar condition.

    An assertion would be an operation with state, and TensorFlow runs those of a function one after
    the other, on any task: the next pull would wait for the message that the push before it is
    done. So a text fails to be a number instead, which TensorFlow's message repeats.
    """

    def fail() -> tf.Tensor:
        return tf.strings.to_number(message(), tf.int64)

    return tf.cond(fine, lambda: tf.zeros([], tf.int64), fail)


def refuse_outside(
    ids: tf.Tensor, rows: tf.Tensor, table: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """0, scalar int64, for the caller to add to values that depend on the ids `[n]`.

    `rows` is the size of each id's table, `[n]` of the same dtype; `table` gives the table's name
    from the place of an id.
    """
    inside = (ids >= 0) & (ids < rows)

    def message() -> tf.Tensor:
        bad = tf.argmin(tf.cast(inside, tf.int32))
        return tf.strings.format(
            f"id {{}} {OUTSIDE_TABLE} {{}}, which has rows 0 to {{}}",
            (ids[bad], table(bad), rows[bad] - 1),
        )

    return fail_unless(tf.reduce_all(inside), message)
