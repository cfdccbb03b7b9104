"""What an optimizer keeps for each parameter, and how updates change it."""

import dataclasses

import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates


@dataclasses.dataclass(frozen=True)
class Slot:
    """A value that each parameter has beside its own, for the optimizer.

    An update makes `kept * slot + something` of it. A worker that has made several on a copy brings
    the something, and the ps makes as many updates from what the slot has become meanwhile: the
    result is that of all updates one after the other, however stale the copy was.

    Attributes:
        kept: What an update keeps of it: 1 for a sum over all updates, less for a moving average;
            None for the greatest value so far.
        is_square: Whether it is made of squares, and so never below 0.
        is_per_row: Whether a row has a single value of it, instead of one for each of its own.
    """

    start: float = 0.0
    kept: float | None = 1.0
    is_square: bool = False
    is_per_row: bool = False

    def increment(self, before: tf.Tensor, after: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
        """What updates add to what they keep of it.

        Args:
            updates: How many, float32, of a shape that can be broadcast to that of the slot.
        """
        if self.kept is None:
            return after
        added = after - self._kept_by(updates) * before
        # Rounding of a large value before must not outweigh small squares.
        return tf.maximum(added, 0.0) if self.is_square else added

    def merged(self, value: tf.Tensor, increment: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
        """What those updates make of another value of the slot."""
        if self.kept is None:
            return tf.maximum(value, increment)
        return self._kept_by(updates) * value + increment

    def aged(self, value: tf.Tensor, missed: MissedUpdates) -> tf.Tensor:
        """What missed updates make of the slot's values, `[u, dim]` or `[u, 1]`."""
        if self.kept in (None, 1.0):
            return value
        return value * tf.cast(missed.power(self.kept), tf.float32)

    def _kept_by(self, updates: tf.Tensor) -> tf.Tensor:
        return tf.ones([]) if self.kept == 1.0 else tf.pow(tf.constant(self.kept), updates)
