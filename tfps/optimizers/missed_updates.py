"""The updates that rows were no part of, in which Keras changes them all the same."""

import dataclasses
import math

import tensorflow as tf

_EQUAL = 1e-6  # ratios that are no further apart are taken for equal


@dataclasses.dataclass(frozen=True)
class MissedUpdates:
    """For each of some rows, the updates since its last one; its gradient was zero in all of them.

    What they make of a row is a power of their number, or a geometric series. Both are computed in
    float32: where they are not next to nothing, neither is the exponent large.

    Attributes:
        count: How many, `[u, 1]` float32; 0 for a row that missed none.
        next_step: Number of the update that comes next, scalar int64. What a row missed are the
            last `count` updates before it.
    """

    count: tf.Tensor
    next_step: tf.Tensor

    @classmethod
    def of(cls, count: tf.Tensor, next_step: tf.Tensor) -> "MissedUpdates":
        """The missed updates of rows that missed so many, `[u]` of any dtype."""
        return cls(tf.cast(count, tf.float32)[:, tf.newaxis], next_step)

    @property
    def first(self) -> tf.Tensor:
        """Number of the first update that each row missed, `[u, 1]` float32."""
        return tf.cast(self.next_step, tf.float32) - self.count

    def power(self, ratio: float | tf.Tensor, left_out: float | tf.Tensor = 0.0) -> tf.Tensor:
        """What is left of a value that each missed update multiplies by a ratio, `[u, 1]`.

        Args:
            ratio: From 0 up to 1; `[u, 1]` where it differs by row.
            left_out: So many of the updates, `[u, 1]`, do not count.
        """
        if isinstance(ratio, float) and ratio == 1.0:
            return tf.ones([])
        count = self.count - left_out
        if isinstance(ratio, float):
            return (
                tf.exp(count * math.log(ratio)) if ratio > 0.0 else tf.cast(count == 0, tf.float32)
            )
        return tf.exp(count * tf.math.log(ratio))

    def series(self, ratio: float, kept: float | tf.Tensor) -> tf.Tensor:
        """The sum of `ratio^j * kept^(count - j)` for j from 1 to `count`, `[u, 1]`.

        So much is added to a parameter where number j of the missed updates adds `ratio^j` to it,
        after it has kept so much of what it was.

        Args:
            ratio: From 0 up to 1.
            kept: The same; `[u, 1]` where it differs by row.
        """
        apart = tf.convert_to_tensor(ratio - kept, tf.float32)
        is_equal = tf.abs(apart) < _EQUAL
        quotient = (self.power(ratio) - self.power(kept)) / tf.where(is_equal, 1.0, apart)
        return tf.where(is_equal, self.count * self.power(ratio), ratio * quotient)

    def mean_place(self, ratio: float) -> tf.Tensor:
        """The mean of j from 1 to `count`, each weighted with `ratio^j`, `[u, 1]`.

        Args:
            ratio: Below 1.
        """
        count = tf.maximum(self.count, 1.0)
        left = tf.exp(count * math.log(ratio))
        return 1.0 / (1.0 - ratio) - count * left / (1.0 - left)
