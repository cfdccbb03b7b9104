"""What has happened to the keys of each table on one ps."""

import enum

import tensorflow as tf


class Count(enum.IntEnum):
    """Which of a table's numbers."""

    ROWS = 0  # it has now
    ADMITTED = 1  # rows that keys were given
    EVICTED = 2  # rows that made room for others
    FORGOTTEN = 3  # rows of keys that did not occur any more, or whose norm was small
    REFUSED = 4  # times that a key had occurred often enough, but there was no room
    DROPPED = 5  # gradients of keys that had no row, or had lost it when they came


class KeyCounts:
    """Counts by table. The methods are to be called under the device of the ps."""

    def __init__(self, tables: int):
        self._tables = tables
        self._variable = tf.Variable(tf.zeros([len(Count), tables], tf.int64), trainable=False)

    def read(self) -> tf.Tensor:
        """All numbers, `[len(Count), tables]` int64."""
        return self._variable.read_value()

    def rows(self) -> tf.Tensor:
        """How many rows each table has, `[tables]` int64."""
        return self._variable.read_value()[Count.ROWS]

    def by_table(self, tables: tf.Tensor) -> tf.Tensor:
        """How many of some keys each table has, `[tables]` int64.

        Args:
            tables: Index of the table of each key, `[n]` int32.
        """
        ones = tf.ones_like(tables, tf.int64)
        return tf.math.unsorted_segment_sum(ones, tables, self._tables)

    def add(self, added: dict[Count, tf.Tensor]) -> tf.Operation:
        """Adds to some numbers.

        Args:
            added: To each, `[tables]` int64.
        """
        nothing = tf.zeros([self._tables], tf.int64)
        both = tf.stack([added.get(each, nothing) for each in Count])
        return self._variable.assign_add(both, read_value=False)

    def forget_rows(self) -> tf.Operation:
        """Notes that no table has a row any more."""
        return self._variable[Count.ROWS].assign(tf.zeros([self._tables], tf.int64)).op
