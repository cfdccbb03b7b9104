"""The file that predictions are written to, of any form, which appears once it is whole."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy.typing as npt
import tensorflow as tf

from tfps.errors import UserError
from tfps.storage import files
from trainer.datasets.csv_rows import CsvRows
from trainer.datasets.parquet_rows import ParquetRows
from trainer.datasets.tfrecord_rows import TfrecordRows


class PredictionsFile:
    """A file with a row per record: what is kept of it, its labels if known, its predictions."""

    def __init__(self, path: str, overwrite: bool):
        """Writes nothing yet.

        Args:
            path: The file, local or `gs://`: Parquet if its name ends in `.parquet`, TFRecords if
                it ends in `.tfrecord`, else CSV.
        """
        self._path = path
        self._partial = f"{path}.partial"
        self._overwrite = overwrite
        self._file: tf.io.gfile.GFile | None = None
        self._rows: _Rows | None = None

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
        """Adds rows.

        Args:
            kept: As `RecordColumns.kept`.
            labels: By name; none where they are not known.
        """
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


class _Rows(Protocol):
    """Columns become rows of a file."""

    def write(self, columns: Mapping[str, Any]) -> None:
        """Adds rows: by name arrays `[n, …]`, a `ListedColumn` or a `pyarrow.Array`."""

    def close(self) -> None:
        """Writes what is left to write."""
