"""Columns beside predictions as rows of a Parquet file."""

import importlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.errors import UserError
from trainer.datasets.record_columns import ListedColumn

# Rows, or bytes, that are held until they are written together.
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20


class ParquetRows:
    """Rows of a Parquet file; a vector is a list."""

    def __init__(self, path: str, file: tf.io.gfile.GFile):
        try:
            self._arrow = importlib.import_module("pyarrow")
            self._parquet = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise UserError(
                f"--output={path} would be a Parquet file, which needs pyarrow: pip install "
                "'tfps[parquet]'"
            ) from None
        self._sink = _Sink(file)
        self._tables: list[Any] = []
        self._held_rows = self._held_bytes = 0
        self._writer: Any = None
        self._schema: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Adds a row per record."""
        arrays = [self._array(name, values) for name, values in columns.items()]
        table = self._arrow.table(arrays, names=list(columns))
        if self._schema is None:
            self._schema = table.schema
        elif table.schema != self._schema:
            table = self._cast(table)
        self._tables.append(table)
        self._held_rows += table.num_rows
        self._held_bytes += table.nbytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Writes the last rows and the file's end."""
        if self._tables:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._sink, self._schema)
        tables, self._tables = self._tables, []
        self._held_rows = self._held_bytes = 0
        self._writer.write_table(self._arrow.concat_tables(tables))

    def _array(self, name: str, values: Any) -> Any:
        arrow = self._arrow
        if isinstance(values, ListedColumn):
            kind = arrow.string() if values.dtype == "string" else getattr(arrow, values.dtype)()
            return arrow.array(values.values, arrow.list_(kind) if values.holds_lists else kind)
        if not isinstance(values, np.ndarray):
            return values
        flat = values.reshape(len(values), -1)
        width = flat.shape[1]
        if values.dtype == object:
            cells = arrow.array(_utf8(name, flat.reshape(-1)), arrow.string())
        else:
            cells = arrow.array(flat.reshape(-1))
        if width == 1:
            return cells
        ends = np.arange(0, flat.size + 1, width, dtype=np.int32)
        return arrow.ListArray.from_arrays(ends, cells)

    def _cast(self, table: Any) -> Any:
        """The columns of a file whose types differ from those of the first one."""
        try:
            return table.cast(self._schema)
        except (self._arrow.ArrowInvalid, self._arrow.ArrowNotImplementedError) as error:
            raise UserError(
                f"--keep: a column is of another type in a later file: {error}; leave it out"
            ) from None


def _utf8(name: str, values: npt.NDArray[Any]) -> list[str]:
    try:
        return [each.decode("utf-8") for each in values]
    except UnicodeDecodeError as error:
        raise UserError(
            f"column {name!r} of the output: {error.object[:20]!r} is no UTF-8 text, as a Parquet "
            "file's is; write to a .csv file"
        ) from None


class _Sink(io.RawIOBase):
    """TensorFlow's file as pyarrow expects one of Python."""

    def __init__(self, file: tf.io.gfile.GFile):
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._file.write(bytes(content))
        return len(content)
