"""Which rows of a table were changed, kept beside them on their ps."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_PADDING = 128  # rows whose marks are counted together
_TOUCHED = np.uint8(1)


class TouchedRows:
    """A byte for each row of one ps's part of a group: 1 once the row was changed.

    A save looks at them frozen: at a second variable, which shares memory with the first until the
    next push marks rows. A push marks rows after it has written them. So whoever freezes or forgets
    the marks first and reads the rows then misses no change, also where the push is that of a
    worker that was taken for lost and comes late.

    The methods are to be called under the device of the ps.
    """

    def __init__(self, rows: int, device: str):
        """Creates it, no row touched.

        Args:
            rows: Of the part.
            device: Of the ps.
        """
        self._size = -(-rows // _PADDING) * _PADDING
        with tf.device(device):
            self._live = tf.Variable(self._none(), trainable=False)
            nothing = tf.zeros([0], tf.uint8)
            self._frozen = tf.Variable(nothing, trainable=False, shape=tf.TensorShape(None))

    def mark(self, rows: tf.Tensor, writes: Sequence[tf.Operation] = ()) -> tf.Operation:
        """Marks rows of the part, `[n]`, after operations that change them."""
        with tf.control_dependencies(writes):
            return tf.raw_ops.ResourceScatterUpdate(
                resource=self._live.handle, indices=rows, updates=_TOUCHED
            )

    def forget(self) -> None:
        """Marks no row any more."""
        self._live.assign(self._none(), read_value=False)

    def freeze(self) -> None:
        """Keeps the marks as they are now."""
        live = self._live.handle
        with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=live)]):
            self._frozen.assign(self._live.read_value(), read_value=False)

    def thaw(self) -> None:
        """Lets go of what was frozen."""
        self._frozen.assign(tf.zeros([0], tf.uint8), read_value=False)

    def counts(self, stride: int) -> tf.Tensor:
        """The frozen marks in each run of so many rows, `[runs]` int32.

        Args:
            stride: A multiple of 128; the last run may be shorter.
        """
        # Without a wider copy of the marks: 8 of them are the bits of one number, 16 such numbers'
        # counts fit a byte.
        words = tf.bitcast(tf.reshape(self._frozen.read_value(), [-1, 8]), tf.int64)
        by_word = tf.raw_ops.PopulationCount(x=words)
        counts = tf.cast(tf.reduce_sum(tf.reshape(by_word, [-1, _PADDING // 8]), 1), tf.int32)
        whole_runs = tf.pad(counts, [[0, -self._size % stride // _PADDING]])
        return tf.reduce_sum(tf.reshape(whole_runs, [-1, stride // _PADDING]), 1)

    def select(self, first: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """The rows whose marks are frozen, from one row to before another, `[n]` int64."""
        marks = self._frozen.read_value()[first:end]
        return tf.reshape(tf.where(marks), [-1]) + first

    def _none(self) -> tf.Tensor:
        return tf.zeros([self._size], tf.uint8)
