"""What a worker asks a ps for, in one tensor, since each tensor is a message of its own."""

from typing import NamedTuple

import tensorflow as tf

_TABLES_PER_WORD = 4  # of 16 bits


class AskedKeys(NamedTuple):
    """Distinct keys of which a ps is asked for the rows.

    Attributes:
        hashes: `[u]` int64.
        tables: Index in the group of the table of each, `[u]` int32.
        occurrences: How often each is asked for, `[u]` int32.
    """

    hashes: tf.Tensor
    tables: tf.Tensor
    occurrences: tf.Tensor


class KeyMessage:
    """How keys are written into one tensor, and read again."""

    def __init__(self, tables: int, counts: bool):
        """Makes the form of a message.

        Args:
            tables: How many the group has; of one it is not said.
            counts: Whether it is said how often each key is asked for; else it is taken as once.
        """
        self._says_tables = tables > 1
        self._counts = counts

    def write(self, keys: AskedKeys) -> tf.Tensor:
        """The message, `[n]` int64."""
        pieces = [keys.hashes]
        if self._says_tables:
            short = tf.cast(keys.tables, tf.int16)
            padded = tf.pad(short, [[0, -tf.size(short) % _TABLES_PER_WORD]])
            words = tf.reshape(padded, [-1, _TABLES_PER_WORD])
            pieces = [tf.size(keys.hashes, tf.int64)[tf.newaxis], *pieces]
            pieces.append(tf.bitcast(words, tf.int64))
        if self._counts:
            pieces.append(tf.cast(keys.occurrences, tf.int64))
        return tf.concat(pieces, 0)

    def read(self, message: tf.Tensor) -> AskedKeys:
        """The keys of a message `[n]`."""
        if self._says_tables:
            count = tf.cast(message[0], tf.int32)
            message = message[1:]
        else:
            count = tf.size(message) // 2 if self._counts else tf.size(message)
        hashes = message[:count]
        tables = tf.zeros([count], tf.int32)
        if self._says_tables:
            words = -(-count // _TABLES_PER_WORD)
            short = tf.bitcast(message[count : count + words], tf.int16)
            tables = tf.cast(tf.reshape(short, [-1])[:count], tf.int32)
            message = message[words:]
        occurrences = tf.ones([count], tf.int32)
        if self._counts:
            occurrences = tf.cast(message[count:], tf.int32)
        return AskedKeys(hashes, tables, occurrences)
