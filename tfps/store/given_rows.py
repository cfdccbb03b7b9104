"""Initial rows that the chief has or makes, and sends to the ps."""

import zlib
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfps.experiment.table import Table
from tfps.model.initial_values import is_drawn_by_element, rows_of
from tfps.store.layout import GroupLayout
from tfps.store.partitioned_variable import CHUNK_BYTES


def write_given_rows(
    layout: GroupLayout,
    devices: Sequence[str],
    seed: int,
    write: Callable[[int, tf.Tensor, tf.Tensor], None],
) -> None:
    """Writes the rows of a group's tables that are not drawn on the ps, some at a time.

    Args:
        layout: The group.
        devices: One per ps.
        seed: The run's seed.
        write: Given a part, its rows' numbers within the part `[n]` int64 and their values `[n,
            dim]` float32, puts them where they belong; called under the device of the ps.
    """
    run = max(1, CHUNK_BYTES // (4 * layout.dim))
    for index, table in enumerate(layout.tables):
        if is_drawn_by_element(table.initializer):
            continue
        given = rows_of(table) or _whole(table, seed)
        rows = layout.rows_of(index)
        for part, device in enumerate(devices):
            first, end = layout.bounds(part)
            ids = np.flatnonzero((rows >= first) & (rows < end))
            for start in range(0, len(ids), run):
                some = ids[start : start + run]
                values = given(some)
                with tf.device(device):
                    write(part, tf.constant(rows[some] - first), tf.constant(values))


def _whole(table: Table, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """The rows of a table whose initializer must see all of it, drawn as Keras draws it."""
    # For a function without a seed of its own: replicas must draw the same.
    keras.utils.set_random_seed((seed + zlib.crc32(table.name.encode())) % 2**32)
    values = np.asarray(table.initializer((table.rows, table.dim), dtype="float32"), np.float32)
    return lambda ids: values[ids]
