"""Initial values of tables, for some of their rows."""

import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfps import byte_size
from tfps.data.key_rows import KeyRowFiles
from tfps.errors import UserError, reason_of
from tfps.experiment.task import Table
from tfps.layers.rows_of_files import RowsOfIds

_SLICE_BYTES = 64 << 20
# Those of Keras that draw every value by itself; of classes derived from them nothing is known.
_BY_ELEMENT = {
    keras.initializers.Zeros,
    keras.initializers.Ones,
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
    keras.initializers.GlorotNormal,
    keras.initializers.GlorotUniform,
    keras.initializers.HeNormal,
    keras.initializers.HeUniform,
    keras.initializers.LecunNormal,
    keras.initializers.LecunUniform,
}
# Those that give a row without knowing of others.
_OF_ONE_KEY = (
    keras.initializers.Zeros,
    keras.initializers.Ones,
    keras.initializers.Constant,
    keras.initializers.RandomUniform,
    keras.initializers.RandomNormal,
    keras.initializers.TruncatedNormal,
)
LARGEST_WHOLE = 1 << 30  # bytes of a table that is drawn as a whole, in the chief's memory


def keep_rows(table: str, shape: tuple[int, int], rows: Any) -> RowsOfIds:
    """Copies rows `[rows, dim]` into a temporary file, and makes an initializer of them.

    So they stay the same if they are of an array that changes, or of a weights file that is closed,
    and only the rows being copied are in memory. They may be of an HDF5 file.
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


def is_drawn_by_element(initializer: Any) -> bool:
    """Whether any rows may be drawn without the others, on the ps that hold them."""
    if type(initializer) is keras.initializers.Constant:
        return np.ndim(initializer.value) == 0
    return type(initializer) in _BY_ELEMENT


def rows_of(table: Table) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function from ids `[n]` int64 to rows `[n, dim]` float32; None for a whole initializer."""
    initializer, shape = table.initializer, (table.rows, table.dim)
    if type(initializer) is keras.initializers.Constant:
        matrix = np.broadcast_to(np.asarray(initializer.value), shape)  # as Keras does
        return lambda ids: matrix[ids].astype(np.float32)
    if not isinstance(initializer, RowsOfIds):
        return None

    def given(ids: np.ndarray) -> np.ndarray:
        values = np.asarray(initializer.function(ids), np.float32)
        if values.shape != (len(ids), table.dim):
            raise UserError(
                f"table {table.name!r}: the function of its RowsOfIds gave values of shape "
                f"{list(values.shape)} for {len(ids)} ids; it must give [{len(ids)}, {table.dim}]"
            )
        return values

    return given


def refuse_unusable(table: Table) -> None:
    """Refuses, before any ps is involved, an initializer that cannot fill a table."""
    if table.rows_from:
        _refuse_unreadable(table.name, table.rows_from)
    if table.keys:
        _refuse_unless_of_one_key(table)
        return
    if is_drawn_by_element(table.initializer):
        return
    kind = getattr(table.initializer, "__name__", type(table.initializer).__name__)
    try:
        given = rows_of(table)
        if given:
            given(np.zeros([1], np.int64))
    except UserError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise UserError(
            f"table {table.name!r}: its initializer {kind} cannot give rows of {table.rows} times "
            f"{table.dim} values: {reason_of(error)}"
        ) from error
    if not given and 4 * table.rows * table.dim > LARGEST_WHOLE:
        raise UserError(
            f"table {table.name!r}: its initializer {kind} makes a table as a whole, which is done "
            f"in the chief's memory for up to {byte_size.show(LARGEST_WHOLE)}, but the table has "
            f"{byte_size.show(4 * table.rows * table.dim)}; use an initializer of Keras that draws "
            "every value by itself, such as RandomNormal, or tfps.RowsOfIds"
        )


def _refuse_unreadable(table: str, rows_from: KeyRowFiles) -> None:
    """Reads the first rows of a table's files; errors of the others show when they are read."""
    try:
        next(rows_from.read(), None)
    except UserError as error:
        raise UserError(f"table {table!r}: {error}") from None


def _refuse_unless_of_one_key(table: Table) -> None:
    kind = type(table.initializer)
    is_matrix = kind is keras.initializers.Constant and np.ndim(table.initializer.value) > 0
    if kind not in _OF_ONE_KEY or is_matrix:
        names = ", ".join(each.__name__ for each in _OF_ONE_KEY)
        raise UserError(
            f"table {table.name!r}: its initializer "
            f"{getattr(table.initializer, '__name__', kind.__name__)} looks at the shape of a "
            "table, or at ids in their order, which a table without a vocabulary has not; use one "
            f"of {names}, a Constant of one number"
        )
