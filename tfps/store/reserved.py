"""Memory of a ps that is used as far as something was written to it."""

from collections.abc import Sequence

import tensorflow as tf


def reserved_variable(shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
    """A variable of a large shape that takes memory page by page, as it is written to.

    What was not written to has any value. Linux promises the memory and gives it later, so that a
    variable grows without a copy, and without another shape that graphs would be traced for again.

    To be called under the device of the ps.

    Args:
        shape: `[rows, …]`.
    """
    variable = tf.Variable(_memory(shape, dtype), trainable=False)

    # In a function the value is gone when it returns. A second reference to it, as somebody may
    # have to the first one still, would have the first write copy all of it.
    @tf.function(autograph=False)
    def reserve() -> None:
        variable.assign(_memory(shape, dtype), read_value=False)

    reserve.get_concrete_function()()
    return variable


def _memory(shape: Sequence[int], dtype: tf.DType) -> tf.Tensor:
    return tf.raw_ops.Empty(shape=list(shape), dtype=dtype, init=False)
