"""The rows of an exported model's tables, for inspection."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.errors import RunError, UserError, listed
from tfps.export.exported_files import HINT
from tfps.layers.dynamic_embedding import string_keys

ATTRIBUTE = "rows"  # of a SavedModel: a function for each table, from ids `[n]` to `[n, dim]`


class ExportedTable(NamedTuple):
    """A table of an exported model.

    Attributes:
        rows: Number of rows; ids are in `[0, rows)`. None for a table without a vocabulary, where
            any int64 or string is a key.
        dim: Number of float32 values in a row.
    """

    name: str
    rows: int | None
    dim: int


def lookup_of(table: ExportedTable, look_up: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    """A SavedModel's function for a table, from ids `[n]` int64 to rows; bad ids fail."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")], autograph=False)
    def rows(ids: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.cast(look_up(ids), tf.float32), [None, table.dim])

    return rows


class RowLookups:
    """The row functions of a loaded SavedModel."""

    def __init__(self, loaded: Any, schemas: Any, where: str):
        """Takes `ExportedTable._asdict()` of each table."""
        try:
            self.tables = tuple(ExportedTable(**schema) for schema in schemas)
        except TypeError:
            raise UserError(
                f"{where}: 'tables' is not a list of tables with name, rows and dim; {HINT}"
            ) from None
        names, functions = [t.name for t in self.tables], list(getattr(loaded, ATTRIBUTE, ()))
        if len(functions) != len(names):
            raise UserError(
                f"{where} has {len(names)} tables, but the SavedModel gives rows of "
                f"{len(functions)}; {HINT}"
            )
        self._functions: dict[str, Any] = dict(zip(names, functions, strict=True))

    def rows(self, table: str, ids: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Some rows of a table, `[*shape, dim]` float32; keys may be strings."""
        found = {each.name: each for each in self.tables}
        if table not in found:
            raise UserError(f"there is no table {table!r}; the model has {listed(found, 10)}")
        wanted, count = np.asarray(ids), found[table].rows
        if count is None and wanted.dtype.kind in "UOS":
            wanted = string_keys(tf.constant(wanted.tolist())).numpy()
        if wanted.size and wanted.dtype.kind not in "iu":
            raise UserError(f"ids of table {table!r} are whole numbers, not {wanted.dtype}")
        if count is not None:
            _refuse_outside(table, wanted, count)
        flat = tf.constant(wanted.reshape(-1).astype(np.int64))
        try:
            rows = self._functions[table](flat).numpy()
        except tf.errors.OpError as error:
            raise RunError(f"the rows of table {table!r} cannot be read: {error.message}") from None
        return np.asarray(rows, np.float32).reshape(*wanted.shape, found[table].dim)


def _refuse_outside(table: str, ids: npt.NDArray[Any], rows: int) -> None:
    outside = (ids < 0) | (ids >= rows)
    if outside.any():
        bad = ids[outside].reshape(-1)[0]
        raise UserError(f"id {bad} is outside table {table!r}, which has rows 0 to {rows - 1:,}")
