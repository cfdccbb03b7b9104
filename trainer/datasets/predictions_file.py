"""The file that predictions are written to, of any form, which appears once it is whole."""

import collections
import contextlib
import csv
import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import parquet
from tfps.data.example_encoder import RecordEncoder
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.storage import files
from trainer.datasets.record_columns import ListedColumn

_FRAME_BYTES = 16  # a record's length, and the checksums of that and of the record
# Rows, or bytes, that are held until they are written together.
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
_CELLS = 1 << 17  # that are text at the same time


class TfrecordRows:
    """Writes columns as records with a feature for each."""

    def __init__(self, path: str):
        self.written_bytes = 0
        self._writer = tf.io.TFRecordWriter(path)

    def write(self, columns: Mapping[str, Any]) -> None:
        """Adds records of arrays `[n, ...]`: whole numbers, floats, or bytes objects."""
        flat = {name: np.asarray(x).reshape(len(x), -1) for name, x in columns.items()}
        encoder = RecordEncoder([_feature(name, values) for name, values in flat.items()])
        records = encoder.encode({name: _values(column) for name, column in flat.items()})
        for record in records:
            self._writer.write(record)
        self.written_bytes += sum(map(len, records)) + _FRAME_BYTES * len(records)

    def close(self) -> None:
        self._writer.close()


def _feature(name: str, values: np.ndarray) -> Feature:
    kinds = {"O": "string", "S": "string", "f": "float32"}
    return Feature(name, kinds.get(values.dtype.kind, "int64"), (values.shape[1],))


def _values(column: np.ndarray) -> Any:
    """A sequence for each of the values that a record has."""
    if column.dtype.kind in "OS":
        return column.T.tolist()
    return column.T.astype(np.float32 if column.dtype.kind == "f" else np.int64)


class ParquetRows:
    """Rows of a Parquet file; a vector is a list."""

    def __init__(self, path: str, file: tf.io.gfile.GFile):
        self._arrow, self._parquet = parquet.load(f"--output={path} would be")
        self._sink = parquet.ArrowFile(file)
        self._tables: list[Any] = []
        self._held_rows = self._held_bytes = 0
        self._writer: Any = None
        self._schema: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
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
            f"column {name!r} of the output: {error.object[:20]!r} is no UTF-8 text, which Parquet "
            "and CSV files hold; leave it out, or write to a .tfrecord file"
        ) from None


class CsvRows:
    """Rows of text under a header; a vector is a cell per value."""

    def __init__(self, file: tf.io.gfile.GFile):
        self._file = file
        self._has_header = False

    def write(self, columns: Mapping[str, Any]) -> None:
        rows = max(1, _CELLS // sum(map(_width, columns.values())))
        count = len(next(iter(columns.values())))
        for first in range(0, count, rows):
            self._write({name: values[first : first + rows] for name, values in columns.items()})

    def _write(self, columns: Mapping[str, Any]) -> None:
        cells = [cell for name, values in columns.items() for cell in _cells(name, values)]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._has_header:
            names = [name for name, _ in cells]
            twice = [name for name, count in collections.Counter(names).items() if count > 1]
            if twice:
                raise UserError(
                    f"--keep: the output would have two columns {twice[0]!r}; keep fewer"
                )
            writer.writerow(names)
            self._has_header = True
        writer.writerows(zip(*(values for _, values in cells), strict=True))
        try:
            self._file.write(text.getvalue().encode())
        except UnicodeEncodeError as error:
            raise UserError(
                f"--keep: bytes that are no UTF-8 text ({error.object[error.start :][:20]!r}) have "
                "no place in a CSV file; leave the column out, or write to a .parquet file"
            ) from None

    def close(self) -> None:
        pass


def _width(values: Any) -> int:
    """How many cells a column has per row."""
    return math.prod(values.shape[1:]) if isinstance(values, np.ndarray) else 1


def _cells(name: str, values: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Columns of cells that csv writes as they are, with their names."""
    if isinstance(values, np.ndarray):
        flat = values.reshape(len(values), -1)
        width = flat.shape[1]
        for index in range(width):
            yield name if width == 1 else f"{name}_{index}", _array_cells(name, flat[:, index])
        return
    if isinstance(values, ListedColumn):
        is_list = values.holds_lists
    else:
        is_list = parquet.is_list(values.type)
    if is_list:
        raise UserError(
            f"--keep={name}: a cell of a CSV file holds no list; leave it out, or write to a "
            ".parquet file"
        )
    if not isinstance(values, ListedColumn):
        yield name, parquet.cell_texts("--keep:", name, values)
    elif values.dtype == "float32":
        yield name, ["" if each is None else str(np.float32(each)) for each in values.values]
    else:
        yield name, values.values


def _array_cells(name: str, values: npt.NDArray[Any]) -> list[Any]:
    """Cells of an array: of a number as few digits as give it back."""
    if values.dtype.kind == "f":
        texts: list[Any] = values.astype(str).tolist()
        return texts
    if values.dtype == object:
        return _utf8(name, values)
    cells: list[Any] = values.tolist()
    return cells


class PredictionsFile:
    """A file with a row per record: what is kept of it, its labels if known, its predictions.

    It is Parquet if its name ends in `.parquet`, TFRecords if it ends in `.tfrecord`, else CSV.
    """

    def __init__(self, path: str, overwrite: bool):
        self._path = path
        self._partial = f"{path}.partial"
        self._overwrite = overwrite
        self._file: tf.io.gfile.GFile | None = None
        self._rows: TfrecordRows | ParquetRows | CsvRows | None = None

    def open(self) -> None:
        """Makes the file, under the name that it has until it is whole."""
        with self._refused():
            if files.is_directory(self._path):
                raise UserError(f"--output={self._path} is a directory; name a file")
            if files.exists(self._path) and not self._overwrite:
                raise UserError(f"--output={self._path} exists; name another, or say --overwrite")
            if self._path.endswith(".tfrecord"):
                self._rows = TfrecordRows(self._partial)
                return
            file = tf.io.gfile.GFile(self._partial, "wb")
            is_parquet = self._path.endswith(".parquet")
            rows = ParquetRows(self._path, file) if is_parquet else CsvRows(file)
            file.write(b"")  # which opens it
            self._file, self._rows = file, rows

    def write(
        self,
        kept: Mapping[str, Any],
        labels: Mapping[str, npt.NDArray[Any]],
        predictions: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Adds rows; what is kept is as `RecordColumns.kept`."""
        columns = dict(kept)
        for kind, values in (("label", labels), ("prediction", predictions)):
            for name, value in values.items():
                column = kind if len(values) == 1 else f"{kind}_{name}"
                if column in columns:
                    raise UserError(
                        f"--keep={column}: the output has a column {column!r} of its own; leave it "
                        "out"
                    )
                columns[column] = value
        assert self._rows is not None
        with self._refused():
            self._rows.write(columns)

    def finish(self) -> int:
        """Gives the file its name; returns its bytes."""
        assert self._rows is not None
        with self._refused():
            self._rows.close()
            if self._file:
                size = self._file.tell()
                self._file.close()
            else:
                assert isinstance(self._rows, TfrecordRows)
                size = self._rows.written_bytes
            tf.io.gfile.rename(self._partial, self._path, overwrite=self._overwrite)
            return int(size)

    def discard(self) -> None:
        """Removes what was written, when the run has failed."""
        if self._rows is not None:
            # What it has left to write is not wanted, nor is it if that fails.
            with contextlib.suppress(tf.errors.OpError, OSError):
                self._rows.close()
        try:
            if self._file:
                self._file.close()
            tf.io.gfile.remove(self._partial)
        except tf.errors.OpError as error:
            sys.stderr.write(f"{self._partial} is left over: {error.message}\n")

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        """Says of whatever the storage refuses that the file cannot be written."""
        try:
            yield
        except tf.errors.OpError as error:
            raise UserError(
                f"--output={self._path} cannot be written: {error.message}; name a file in a "
                "directory that exists and is yours to write"
            ) from None
