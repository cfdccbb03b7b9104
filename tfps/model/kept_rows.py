"""Rows of a table that a user gives, kept on disk until the ps have them."""

import tempfile
from typing import Any

import numpy as np

from tfps.errors import UserError
from tfps.layers.rows_of_ids import RowsOfIds

_SLICE_BYTES = 64 << 20


def keep_rows(table: str, shape: tuple[int, int], rows: Any) -> RowsOfIds:
    """Copies rows into a temporary file, some at a time, and makes an initializer of them.

    So they stay what they were when they were given, whether they came from an array that changes,
    or from a file of weights that is closed; and only what is being copied is in memory.

    Args:
        rows: `[rows, dim]`: an array, a tensor, or a dataset of an HDF5 file.
    """
    if tuple(rows.shape) != shape:
        raise UserError(
            f"table {table!r} is given rows of the shape {list(rows.shape)}, but it has {shape[0]} "
            f"rows of {shape[1]} values"
        )
    # The file has no name, and is gone when nothing uses the rows any more.
    with tempfile.TemporaryFile() as file:
        kept = np.memmap(file, np.float32, "w+", shape=shape)
    run = max(1, _SLICE_BYTES // (4 * shape[1]))
    for first in range(0, shape[0], run):
        kept[first : first + run] = np.asarray(rows[first : first + run], np.float32)
    return RowsOfIds(lambda ids: np.asarray(kept[ids]))
