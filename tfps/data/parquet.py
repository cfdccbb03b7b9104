"""Reads Parquet files by column names, in blocks of rows.

A cell becomes the text that it would be in a CSV file, so that a task's converters serve both: a
missing value is an empty cell, truth is 1 or 0, and a whole number has no decimals. A list is the
values of a field with a separator.
"""

import dataclasses
import importlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import tensorflow as tf

from tfps.data.row_format import BadRow, Cell, Columns, RowFormat, Values
from tfps.errors import UserError
from tfps.storage import files

_MAGIC = b"PAR1"
_BLOCK_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class ParquetBlock:
    """Some rows of a file.

    Attributes:
        path: The file.
        before: Number of rows before the block.
        batch: A `pyarrow.RecordBatch` of the columns that the format uses.
        size: Bytes that it takes of the file, about.
    """

    path: str
    before: int
    batch: Any
    size: int

    def columns(self, row_format: RowFormat) -> tuple[int, dict[str, Columns]]:
        """Number of rows, and their values by field name.

        Raises:
            ValueError: If a row is bad; `rows` knows which.
        """
        return self.batch.num_rows, row_format.convert_columns(self._cells())

    def rows(
        self, row_format: RowFormat, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[tuple[str, Values]]:
        """The rows one by one: what names each, and its values by field name."""
        cells = self._cells()
        for index in range(self.batch.num_rows):
            where = f"{self.path} row {self.before + index + 1}"
            try:
                row = {name: column[index] for name, column in cells.items()}
                yield where, row_format.convert_row(where, row)
            except BadRow as bad:
                on_bad_row(bad)

    def _cells(self) -> dict[str, Sequence[Cell]]:
        return {
            name: _texts(self.path, name, column)
            for name, column in zip(self.batch.schema.names, self.batch.columns, strict=True)
        }


def is_parquet(path: str) -> bool:
    """Whether a file is one, by its first bytes."""
    if not files.exists(path) or files.is_directory(path):
        return False
    with tf.io.gfile.GFile(path, "rb") as file:
        return bool(file.read(len(_MAGIC)) == _MAGIC)


def parquet_blocks(path: str, row_format: RowFormat) -> Iterator[ParquetBlock]:
    """All rows of a Parquet file, in order.

    Args:
        path: The file, local or `gs://`.
        row_format: Names the columns to read.

    Raises:
        UserError: If pyarrow is not installed, the file cannot be read, or lacks a column.
    """
    try:
        parquet, arrow = importlib.import_module("pyarrow.parquet"), _arrow()
    except ImportError:
        raise UserError(
            f"{path} is a Parquet file, which needs pyarrow: pip install 'tfps[parquet]'"
        ) from None
    columns = sorted({name for field in row_format.fields.values() for name in field.columns})
    size, before = tf.io.gfile.stat(path).length, 0
    try:
        with tf.io.gfile.GFile(path, "rb") as opened:
            file = parquet.ParquetFile(arrow.PythonFile(_File(opened), mode="r"))
            _check_columns(path, row_format, columns, file.schema_arrow)
            rows = file.metadata.num_rows
            for batch in file.iter_batches(_BLOCK_ROWS, columns=columns):
                share = size * batch.num_rows // rows
                yield ParquetBlock(path, before, batch, share)
                before += batch.num_rows
    except (arrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a whole Parquet file: {error}") from None


class _File(io.RawIOBase):
    """TensorFlow's file as pyarrow expects one of Python."""

    def __init__(self, file: tf.io.gfile.GFile):
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._file.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())


def _check_columns(path: str, row_format: RowFormat, columns: Sequence[str], schema: Any) -> None:
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise UserError(
            f"{path} has no column {', '.join(missing)} (it has {', '.join(schema.names)}); the "
            "config's rows() names the columns"
        )
    for name, field in row_format.fields.items():
        for column in field.columns:
            kind = schema.field(column).type
            if _is_list(kind) and field.separator is None:
                raise UserError(
                    f"{path} column {column} is of type {kind}, but field {name!r} of rows() has "
                    "no separator, as fields of many values have; give it one"
                )


def _is_list(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _texts(path: str, name: str, column: Any) -> Sequence[Cell]:
    """The cells of a column as text, or as lists of texts."""
    arrow, kind = _arrow(), column.type
    if _is_list(kind):
        lists = column.cast(arrow.large_list(kind.value_type))
        texts = cast(Sequence[str], _texts(path, name, lists.values))
        return [list(texts[a:b]) for a, b in itertools.pairwise(lists.offsets.to_pylist())]
    if arrow.types.is_boolean(kind):
        column = column.cast(arrow.int8())
    if arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind):
        held = (cell or b"" for cell in column.to_pylist())
        return [cell.decode("utf-8", errors="surrogateescape") for cell in held]
    try:
        texts = column.cast(arrow.string()).fill_null("").to_pylist()
    except (arrow.ArrowNotImplementedError, arrow.ArrowInvalid):
        raise UserError(
            f"{path} column {name} is of type {kind}; a column must be of numbers, text or lists "
            "of them"
        ) from None
    return cast(Sequence[Cell], texts)


def _arrow() -> Any:
    return importlib.import_module("pyarrow")
