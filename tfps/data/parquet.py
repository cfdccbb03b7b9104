"""Reads Parquet files by column names, in blocks of rows.

A cell becomes the text that it would be in a CSV file, so that a task's converters serve both: a
missing value is an empty cell, truth is 1 or 0, and a whole number has no decimals. A list is the
values of a field with a separator. Numbers that a converter would read out of their texts unchanged
skip that way.
"""

import contextlib
import dataclasses
import importlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import converters
from tfps.data.converters import optional
from tfps.data.row_format import BadRow, Cell, Columns, Field, RowFormat, Values
from tfps.errors import UserError, listed
from tfps.storage import files
from tfps.storage.failures import of_named

_MAGIC = b"PAR1"
BLOCK_ROWS = 1024
_BLOCK_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class ParquetBlock:
    """Some rows of a file."""

    path: str
    before: int
    batch: Any  # a `pyarrow.RecordBatch`
    size: int  # bytes that it takes of the file, about

    def columns(self, row_format: RowFormat) -> tuple[int, dict[str, Columns]]:
        """Number of rows, and their values by field name; a bad row is a `ValueError`."""
        values, others = {}, []
        for name, field in row_format.fields.items():
            if (found := self._numbers(field)) is not None:
                values[name] = found
            else:
                others.append(name)
        rest = row_format.only(others)
        return self.batch.num_rows, {**values, **rest.convert_columns(self._cells(rest))}

    def rows(
        self, row_format: RowFormat, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[tuple[int, Values]]:
        """The good rows one by one: the number of each, from 1, and its values by field name."""
        cells = self._cells(row_format)
        for index in range(self.batch.num_rows):
            number = self.before + index + 1
            try:
                row = {name: column[index] for name, column in cells.items()}
                yield number, row_format.convert_row(self.where(number), row)
            except BadRow as bad:
                on_bad_row(bad)

    def where(self, number: int) -> str:
        return f"{self.path} row {number}"

    def _cells(self, row_format: RowFormat) -> dict[str, Sequence[Cell]]:
        return {
            name: cell_texts(self.path, name, self.batch.column(name))
            for name in _columns_of(row_format)
        }

    def _numbers(self, field: Field) -> Columns | None:
        """A field's values, where its columns hold such numbers as its converter gives."""
        found = [_typed_cells(self.batch.column(name), field) for name in field.columns]
        return None if any(cells is None for cells in found) else cast(Columns, found)


def is_parquet(path: str) -> bool:
    """Whether a file is one, by its first bytes."""
    if not files.exists(path) or files.is_directory(path):
        return False
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return bool(file.read(len(_MAGIC)) == _MAGIC)
    except tf.errors.OpError as error:
        raise of_named(error, path) from None


def column_names(path: str) -> list[str]:
    with _opened(path) as file:
        return list(file.schema_arrow.names)


def parquet_blocks(
    path: str, row_format: RowFormat, others: Sequence[str] = (), block_rows: int = BLOCK_ROWS
) -> Iterator[ParquetBlock]:
    """All rows of a Parquet file in order, `block_rows` a block, fewer where they are large."""
    columns = sorted({*_columns_of(row_format), *others})
    size, before = tf.io.gfile.stat(path).length, 0
    with _opened(path) as file:
        _check_columns(path, row_format, columns, file.schema_arrow)
        rows, groups = file.metadata.num_rows, range(file.num_row_groups)
        content = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        block_rows = min(block_rows, max(1, _BLOCK_BYTES * rows // max(1, content)))
        for batch in file.iter_batches(block_rows, columns=columns):
            share = size * batch.num_rows // rows
            yield ParquetBlock(path, before, batch, share)
            before += batch.num_rows


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`; also for what goes wrong while it is read."""
    arrow, parquet = load(f"{path} is")
    try:
        with tf.io.gfile.GFile(path, "rb") as opened:
            yield parquet.ParquetFile(arrow.PythonFile(ArrowFile(opened), mode="r"))
    except tf.errors.OpError as error:
        raise of_named(error, path) from None
    except (arrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a whole Parquet file: {error}") from None


def load(what: str) -> tuple[Any, Any]:
    """The modules `pyarrow` and `pyarrow.parquet`; `what` names the file in the refusal."""
    try:
        return _arrow(), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(
            f"{what} a Parquet file, which needs pyarrow: pip install 'tfps[parquet]'"
        ) from None


class ArrowFile(io.RawIOBase):
    """TensorFlow's file as pyarrow expects one of Python."""

    def __init__(self, file: tf.io.gfile.GFile):
        self._file = file

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._file.write(bytes(content))
        return len(content)

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
            f"{path} has no column {listed(missing)} (it has {listed(schema.names)}); the "
            "config's rows() names the columns"
        )
    for name in columns:
        if schema.names.count(name) > 1:
            raise UserError(f"{path} has two columns of the name {name!r}; rename one")
    for name, field in row_format.fields.items():
        for column in field.columns:
            kind = schema.field(column).type
            if is_list(kind) and field.separator is None:
                raise UserError(
                    f"{path} column {listed([column])} is of type {kind}, but field {name!r} of "
                    "rows() has no separator, as fields of many values have; give it one"
                )


def is_list(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _columns_of(row_format: RowFormat) -> set[str]:
    return {name for field in row_format.fields.values() for name in field.columns}


def _typed_cells(column: Any, field: Field) -> Sequence[Any] | None:
    """What a field's converter would give for the text of each cell; None where it must convert."""
    if field.separator is None:
        return cast(Sequence[Any] | None, _typed_numbers(column, field))
    if not is_list(column.type):
        return None
    lists = _large_lists(column)
    values = _typed_numbers(lists.values, field)
    if values is None:
        return None
    flat = values.tolist()
    return [flat[a:b] for a, b in itertools.pairwise(lists.offsets.to_pylist())]


def _typed_numbers(column: Any, field: Field) -> npt.NDArray[Any] | None:
    column = _decoded(column)
    convert = field.convert.convert if isinstance(field.convert, optional) else field.convert
    types, kind = _arrow().types, column.type
    if column.null_count or not types.is_primitive(kind):
        return None
    is_integer = types.is_integer(kind) and not types.is_uint64(kind)
    if convert is converters.integer and is_integer:
        return column.to_numpy(zero_copy_only=False).astype(np.int64)
    # The text of a half-precision number is that of another one of more digits.
    is_float = types.is_float32(kind) or types.is_float64(kind)
    if convert is converters.number and (is_integer or is_float):
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return values if np.isfinite(values).all() else None
    return None


def _decoded(column: Any) -> Any:
    """A column whose values stand for themselves, not for those of a dictionary."""
    is_encoded = _arrow().types.is_dictionary(column.type)
    return column.dictionary_decode() if is_encoded else column


def _large_lists(column: Any) -> Any:
    return column.cast(_arrow().large_list(column.type.value_type))


def cell_texts(path: str, name: str, column: Any) -> Sequence[Cell]:
    """The cells of a `pyarrow.Array` as text, or lists of texts; bytes as if read of a file."""
    column = _decoded(column)
    arrow, kind = _arrow(), column.type
    if is_list(kind):
        lists = _large_lists(column)
        texts = cast(Sequence[str], cell_texts(path, name, lists.values))
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
            f"{path} column {listed([name])} is of type {kind}; a column must be of numbers, text "
            "or lists of them"
        ) from None
    return cast(Sequence[Cell], texts)


def _arrow() -> Any:
    return importlib.import_module("pyarrow")
