"""Rows of text to predict, as records: laid out by a task, or by a header naming features."""

import csv
import dataclasses
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, cast

import tensorflow as tf

from tfps.data import examples
from tfps.data.converters import integer, number
from tfps.data.feature import Feature
from tfps.data.row_format import BadRow, Field, RowFormat, Value
from tfps.errors import UserError
from trainer.datasets.record_batch import RecordBatch

_CONVERTERS: dict[str, Callable[[str], Value]] = {
    "int64": integer,
    "float32": number,
    "string": lambda text: text.encode("utf-8"),
}

_SEPARATOR = "|"  # between the values of a cell, for features that vary in length


class PredictionRows:
    """Reads text files, each with or without labels.

    Attributes:
        bad_rows: How many rows were left out so far.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        labels: Sequence[Feature],
        row_format: RowFormat | None,
        max_bad_rows: int = 0,
    ):
        """Reads rows of the given layout.

        Args:
            features: What a record must hold.
            labels: What it may hold too.
            row_format: The layout of files without a header, the labels' columns optional; None
                for comma-separated (`.tsv`: tab-separated) files whose header names the features.
            max_bad_rows: How many bad rows may be left out.
        """
        self._features = features
        self._labels = labels
        self._row_format = row_format
        self._max_bad_rows = max_bad_rows
        self.bad_rows = 0

    def batches(self, path: str, batch_size: int) -> Iterator[RecordBatch]:
        """The rows of one file.

        Args:
            path: A text file, local or `gs://`; gzip when it ends in `.gz`.
            batch_size: Rows per batch; the last one may be smaller.

        Yields:
            Batches numbered by line.

        Raises:
            UserError: If the file cannot be read, has the wrong columns, or has more bad rows than
                allowed.
        """
        if self._row_format is None:
            row_format, header_line = self._format_of_header(path)
        else:
            row_format, header_line = self._format_of_first_row(path, self._row_format), 0
        is_labelled = all(label.name in row_format.fields for label in self._labels)
        lines: list[int] = []
        records: list[bytes] = []
        labels = self._labels if is_labelled else ()
        for line, record in self._records(path, row_format, labels, header_line):
            lines.append(line)
            records.append(record)
            if len(lines) == batch_size:
                yield RecordBatch(path, "line", lines, records, is_labelled)
                lines, records = [], []
        if lines:
            yield RecordBatch(path, "line", lines, records, is_labelled)

    def _records(
        self, path: str, row_format: RowFormat, labels: Sequence[Feature], header_line: int
    ) -> Iterator[tuple[int, bytes]]:
        """Line number and serialized record of every good row after the header."""
        header = f"{path} line {header_line}"

        def on_bad_row(bad: BadRow) -> None:
            # The header is a row to RowFormat, mostly a bad one.
            if not header_line or not str(bad).startswith((f"{header} ", f"{header}:")):
                self._leave_out(bad)

        for line, values in row_format.read(path, on_bad_row):
            if line == header_line:
                continue
            try:
                yield line, examples.encode(values, self._features, labels)
            except UserError as error:
                self._leave_out(BadRow(f"{path} line {line}: {error}"))

    def _leave_out(self, bad: BadRow) -> None:
        self.bad_rows += 1
        if self.bad_rows > self._max_bad_rows:
            raise UserError(
                f"{bad}; mend the row, or leave bad rows out with --max_bad_rows={self.bad_rows} "
                "or more"
            )

    def _format_of_first_row(self, path: str, full: RowFormat) -> RowFormat:
        """The layout with the labels' columns or without them, whichever the first row has."""
        names = [feature.name for feature in self._features]
        features_only = full.only(names)
        label_names = [label.name for label in self._labels]
        if not all(name in full.fields for name in label_names):
            return features_only
        full = full.only([*names, *label_names])
        needed = {column for field in features_only.fields.values() for column in field.columns}
        of_labels = {column for name in label_names for column in full.fields[name].columns}
        columns = tuple(c for c in full.columns if c in needed or c not in of_labels)
        unlabelled = RowFormat(columns, full.delimiter, features_only.fields)
        return full if self._fits(path, full) or not self._fits(path, unlabelled) else unlabelled

    def _fits(self, path: str, row_format: RowFormat) -> bool:
        """Whether a row has the layout's number of columns, before too many have not."""
        bad_rows: list[BadRow] = []

        def on_bad_row(bad: BadRow) -> None:
            bad_rows.append(bad)
            if len(bad_rows) > self._max_bad_rows:
                raise bad

        try:
            rows = dataclasses.replace(row_format, fields={}).read(path, on_bad_row)
            return next(rows, None) is not None
        except BadRow:
            return False

    def _format_of_header(self, path: str) -> tuple[RowFormat, int]:
        """The layout that a file's header describes, and the header's line."""
        line, text = _first_line(path)
        where = f"{path} line {line}"
        delimiter = "\t" if path.removesuffix(".gz").endswith(".tsv") else ","
        header = [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter))]
        fields = {feature.name: _field(feature) for feature in self._features}
        labels = {label.name: _field(label) for label in self._labels}
        if any(set(field.columns) & set(header) for field in labels.values()):
            fields.update(labels)
        wanted = [column for field in fields.values() for column in field.columns]
        missing = [name for name in wanted if name not in header]
        unknown = [name for name in header if name not in wanted]
        if missing or unknown:
            parts = [
                f"{text} {_listed(names)}"
                for text, names in (("it lacks", missing), ("it has the unknown", unknown))
                if names
            ]
            raise UserError(
                f"{where}: the header does not name the model's features: {' and '.join(parts)}. "
                "Mend it, or, for a file without a header, give --config"
            )
        if len(set(header)) != len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise UserError(f"{where}: the header names the column {twice!r} twice")
        return RowFormat(tuple(header), delimiter, fields), line


def _field(feature: Feature) -> Field:
    """Where a feature stands under a header: NAME, or NAME_0, NAME_1, … for a vector."""
    columns: tuple[str, ...] = (feature.name,)
    if feature.is_ragged:
        return Field(columns, _CONVERTERS[feature.dtype], _SEPARATOR)
    if feature.size is not None and feature.shape:
        columns = tuple(f"{feature.name}_{index}" for index in range(feature.size))
    return Field(columns, _CONVERTERS[feature.dtype])


def _listed(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(repr, names[:shown])) + more


def _first_line(path: str) -> tuple[int, str]:
    """Number and text of a file's first line that is not blank."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            raw = cast(IO[bytes], file)
            lines = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            for line, text in enumerate(lines, start=1):
                if text.strip():
                    return line, text.decode("utf-8-sig")
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} line {line}: the header is not UTF-8 text") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}") from None
    raise UserError(f"{path} is empty; its first line must name the features")
