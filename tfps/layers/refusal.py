"""Fails a step from inside its graph, at no cost to the steps that are fine."""

from collections.abc import Callable

import tensorflow as tf


def refusal(fine: tf.Tensor, message: Callable[[], tf.Tensor]) -> tf.Tensor:
    """0, scalar int64, which the caller adds to what depends on the condition.

    An assertion would be an operation with state, and TensorFlow runs those of a function one after
    the other, on whatever task: the next pull would wait for messages that tell that the push
    before it is done. So a text fails to be a number instead, which TensorFlow's message repeats.

    Args:
        fine: The condition, scalar bool.
        message: Gives what to say when it does not hold, scalar string.

    Raises:
        tf.errors.InvalidArgumentError: The condition does not hold.
    """

    def fail() -> tf.Tensor:
        return tf.strings.to_number(message(), tf.int64)

    return tf.cond(fine, lambda: tf.zeros([], tf.int64), fail)
