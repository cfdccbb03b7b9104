"""Which row numbers of one ps are given to a new key."""

import tensorflow as tf

from tfps.store.keyed.row_records import next_generation
from tfps.store.reserved import reserved_variable


class FreeRows:
    """Row numbers that keys have lost, the last ones first, then those that none ever had.

    Whoever changes it must be the only one who does. The methods are to be called under the device
    of the ps.

    Attributes:
        used: One after the greatest number that was ever given out, scalar int64.
    """

    def __init__(self, first: int, capacity: int, takes_back: bool):
        self._first = first
        self.used = tf.Variable(first, dtype=tf.int64, trainable=False)
        self._generation = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._free = reserved_variable([capacity if takes_back else 1], tf.int64)

    def take(self, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Gives out numbers; there must be as many.

        Args:
            count: How many, scalar int64.

        Returns:
            The numbers `[count]` int64, and their generation, scalar int64.
        """
        free, used = self._count.read_value(), self.used.read_value()
        again = tf.minimum(count, free)
        kept = free - again
        places = tf.range(kept, free)
        old = tf.raw_ops.ResourceGather(resource=self._free.handle, indices=places, dtype=tf.int64)
        new = tf.range(used, used + count - again)
        generation = next_generation(self._generation.read_value())
        rows = tf.concat([old, new], 0)
        with tf.control_dependencies([rows, generation]):
            noted = [
                self._count.assign(kept, read_value=False),
                self.used.assign(used + count - again, read_value=False),
                self._generation.assign(generation, read_value=False),
            ]
        with tf.control_dependencies(noted):
            return tf.identity(rows), tf.identity(generation)

    def give_back(self, rows: tf.Tensor) -> tf.Operation:
        """Takes numbers `[n]` back; returns what is done then."""
        free = self._count.read_value()
        count = tf.size(rows, tf.int64)
        with tf.control_dependencies([free]):
            written = tf.raw_ops.ResourceScatterUpdate(
                resource=self._free.handle, indices=tf.range(free, free + count), updates=rows
            )
        with tf.control_dependencies([written]):
            return self._count.assign(free + count, read_value=False)

    def clear(self) -> tf.Operation:
        """Takes all numbers back; generations go on, so that nobody finds one of before."""
        return tf.group(
            self.used.assign(self._first, read_value=False),
            self._count.assign(0, read_value=False),
        )
