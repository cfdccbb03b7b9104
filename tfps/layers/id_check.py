"""Refuses ids for which a table has no row."""

from collections.abc import Callable

import tensorflow as tf

from tfps.layers.refusal import refusal


def refuse_outside(
    ids: tf.Tensor, rows: tf.Tensor, table: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """0, scalar int64, which the caller adds to what depends on the ids.

    Args:
        ids: `[n]`, int32 or int64.
        rows: How many rows the table of each id has, `[n]` of the same dtype; valid ids are 0 to
            one less.
        table: Gives the name of the table of an id from its place in `ids`, scalar string.

    Raises:
        tf.errors.InvalidArgumentError: Names the first id that lies outside, and its table.
    """
    inside = (ids >= 0) & (ids < rows)

    def message() -> tf.Tensor:
        bad = tf.argmin(tf.cast(inside, tf.int32))
        return tf.strings.format(
            "id {} is outside table {}, which has rows 0 to {}",
            (ids[bad], table(bad), rows[bad] - 1),
        )

    return refusal(tf.reduce_all(inside), message)
