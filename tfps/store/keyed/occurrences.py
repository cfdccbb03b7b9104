"""How often keys without a row have occurred, in little memory."""

import numpy as np
import tensorflow as tf

from tfps.layers import id_check
from tfps.layers.key_options import MOST_OCCURRENCES

_DEPTH = 4
_COUNTERS_PER_ROW = 8  # in each of the depth's lines
_LEAST_BITS, _MOST_BITS = 16, 26
# Odd numbers, with which a hash is spread anew for each line. None is a small multiple of another:
# keys that meet in one line would meet in the other.
_FACTORS = (id_check.GOLDEN, *(factor for _, factor in id_check.ROUNDS), 0xD1342543DE82EF95)


class Occurrences:
    """Four lines of counters of a byte, eight in each for each row that the ps may have.

    A count-min sketch (Cormode and Muthukrishnan, Journal of Algorithms 2005) with conservative
    updates (Estan and Varghese, SIGCOMM 2002). It never counts too little. When w counters a line
    have counted w/2 occurrences of keys without a row, all counts are halved, so that what is rare
    is forgotten and the sketch does not fill up. Until then the count of a key is too great by one
    or more with a probability of at most (1 - e^-1/2)^4 = 2.4 %, at the very end of such a time.

    Whoever changes it must be the only one who does. The methods are to be called under the device
    of the ps.
    """

    def __init__(self, rows: int):
        self._bits = min(_MOST_BITS, max(_LEAST_BITS, (_COUNTERS_PER_ROW * rows).bit_length()))
        self._width = 1 << self._bits
        self._counters = tf.Variable(tf.zeros([_DEPTH * self._width], tf.int8), trainable=False)
        self._counted = tf.Variable(0, dtype=tf.int64, trainable=False)

    @staticmethod
    def bytes_for(rows: int) -> int:
        """What it takes of a ps's memory."""
        bits = min(_MOST_BITS, max(_LEAST_BITS, (_COUNTERS_PER_ROW * rows).bit_length()))
        return _DEPTH << bits

    def add(self, hashes: tf.Tensor, occurrences: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        """Counts.

        Args:
            hashes: Of keys, `[n]` int64, each once.
            occurrences: Of each, `[n]` int32.

        Returns:
            How often each has occurred by now, `[n]` int32, no more than 127; and what writes.
        """
        bits = tf.bitcast(hashes, tf.uint64)[:, tf.newaxis]
        spread = tf.bitwise.right_shift(
            bits * tf.constant(np.array(_FACTORS, np.uint64)),
            tf.constant(64 - self._bits, tf.uint64),
        )
        lines = tf.range(_DEPTH, dtype=tf.int64) * self._width
        places = tf.bitcast(spread, tf.int64) + lines
        counts = tf.raw_ops.ResourceGather(
            resource=self._counters.handle, indices=places, dtype=tf.int8
        )
        so_far = tf.cast(tf.reduce_min(counts, 1), tf.int32) + occurrences
        now = tf.minimum(so_far, 127)
        updates = tf.cast(tf.broadcast_to(now[:, tf.newaxis], tf.shape(places)), tf.int8)
        with tf.control_dependencies([now]):
            written = tf.raw_ops.ResourceScatterMax(
                resource=self._counters.handle, indices=places, updates=updates
            )
        total = self._counted + tf.reduce_sum(tf.cast(occurrences, tf.int64))
        with tf.control_dependencies([written, total]):
            noted = self._counted.assign(total, read_value=False)
        with tf.control_dependencies([noted]):
            halved = tf.cond(total > self._width // 2, self._halve, lambda: tf.constant(False))
        return now, halved.op

    def clear(self) -> tf.Operation:
        """Forgets everything; returns what is done then."""
        return tf.group(
            self._counters.assign(tf.zeros_like(self._counters), read_value=False),
            self._counted.assign(0, read_value=False),
        )

    def _halve(self) -> tf.Tensor:
        halves = tf.bitwise.right_shift(self._counters.read_value(), tf.constant(1, tf.int8))
        halved = self._counters.assign(halves, read_value=False)
        begun = self._counted.assign(0, read_value=False)
        with tf.control_dependencies([halved, begun]):
            return tf.constant(True)


assert MOST_OCCURRENCES < 128
assert len(_FACTORS) == _DEPTH
