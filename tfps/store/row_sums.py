"""Sums of values by row."""

import tensorflow as tf


def sum_rows(values: tf.Tensor, row: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The sum of the values of each row.

    Args:
        values: `[n, dim]`.
        row: Which row each is of, `[n]` int32.
        rows: Number of rows, scalar int32.

    Returns:
        `[rows, dim]`.
    """
    # A sparse matrix of ones times the values: 0.6 of the time that unsorted_segment_sum takes for
    # dim 16 and less, and the same for larger ones.
    count = tf.size(row)
    return tf.raw_ops.SparseTensorDenseMatMul(
        a_indices=tf.stack([row, tf.range(count)], 1),
        a_values=tf.ones([count]),
        a_shape=tf.cast(tf.stack([rows, count]), tf.int64),
        b=values,
    )
