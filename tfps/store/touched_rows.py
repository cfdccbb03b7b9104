"""Which rows of a table were changed, kept beside them on their ps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.store.group_layout import GroupLayout

_PADDING = 128  # rows whose marks are counted together
_UNTOUCHED, _TOUCHED = np.uint8(0), np.uint8(1)


class TouchedCounts(NamedTuple):
    """How many rows are marked.

    Attributes:
        by_run: In each run of rows, `[runs]` int32.
        by_table: Of each of the group's tables, `[tables]` int64.
    """

    by_run: tf.Tensor
    by_table: tf.Tensor


class TouchedRows:
    """A byte for each row of one ps's part of a group: 1 once the row was changed.

    A save looks at them frozen: at a second variable, which shares memory with the first until the
    next push marks rows. A push marks rows after it has written them. So whoever freezes or forgets
    the marks first and reads the rows then misses no change, also where the push is that of a
    worker that was taken for lost and comes late.

    The methods are to be called under the device of the ps.
    """

    def __init__(self, layout: GroupLayout, part: int, device: str):
        self.tables = [table.name for table in layout.tables]
        self._layout, self._part = layout, part
        first, end = layout.bounds(part)
        self._size = -(-(end - first) // _PADDING) * _PADDING
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

    def counts(self, stride: int) -> TouchedCounts:
        """How many rows' marks are frozen.

        Args:
            stride: Rows of a run, a multiple of 128; the last run may be shorter.
        """
        marks = self._frozen.read_value()
        # Without a wider copy of the marks: 8 of them are the bits of one number, 16 such numbers'
        # counts fit a byte.
        words = tf.bitcast(tf.reshape(marks, [-1, 8]), tf.int64)
        by_word = tf.raw_ops.PopulationCount(x=words)
        counts = tf.cast(tf.reduce_sum(tf.reshape(by_word, [-1, _PADDING // 8]), 1), tf.int32)
        whole_runs = tf.pad(counts, [[0, -self._size % stride // _PADDING]])
        by_run = tf.reduce_sum(tf.reshape(whole_runs, [-1, stride // _PADDING]), 1)
        return TouchedCounts(by_run, self._by_table(marks, counts))

    def select(self, first: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """The rows whose marks are frozen, from one row to before another, `[n]` int64."""
        marks = self._frozen.read_value()[first:end]
        return tf.reshape(tf.where(marks), [-1]) + first

    def _by_table(self, marks: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """How many marks each table has, `[tables]` int64.

        Args:
            counts: In each run of 128 rows, `[runs]` int32.
        """
        first, end = self._layout.bounds(self._part)
        if first == end:
            return tf.zeros([len(self.tables)], tf.int64)
        before = tf.cumsum(tf.cast(counts, tf.int64), exclusive=True)
        runs = tf.reshape(marks, [-1, _PADDING])

        def before_rows(rows: tf.Tensor) -> tf.Tensor:
            """How many of the part's rows are marked before each of some rows of the group."""
            places = tf.clip_by_value(rows, first, end) - first
            run = tf.minimum(places // _PADDING, self._size // _PADDING - 1)
            left = (places - run * _PADDING)[:, tf.newaxis]
            is_before = tf.range(_PADDING, dtype=tf.int64) < left
            in_run = tf.where(is_before, tf.gather(runs, run), _UNTOUCHED)
            return tf.gather(before, run) + tf.reduce_sum(tf.cast(in_run, tf.int64), 1)

        # In every bucket the tables follow each other, and behind the last is padding.
        buckets = tf.range(*self._layout.buckets(self._part), dtype=tf.int64)
        starts = tf.map_fn(
            lambda offset: tf.reduce_sum(before_rows(self._layout.first_rows(offset, buckets))),
            tf.constant(self._layout.offsets, tf.int64),
        )
        ends = tf.reduce_sum(before_rows((buckets + 1) * self._layout.bucket_rows))
        return tf.concat([starts[1:], [ends]], 0) - starts

    def _none(self) -> tf.Tensor:
        return tf.zeros([self._size], tf.uint8)
