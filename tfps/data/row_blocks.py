"""Reads files of text in blocks of whole rows, which several processes can parse."""

import codecs
import contextlib
import csv
import dataclasses
import gzip
import io
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import tensorflow as tf

from tfps.data.row_format import BadRow, Columns, RowFormat, Values
from tfps.errors import UserError
from tfps.storage import files
from tfps.storage.failures import of_named

if TYPE_CHECKING:
    import _csv

# What a block's rows become fits a core's cache: larger ones take longer per row.
BLOCK_BYTES = 256 << 10
_DELIMITERS = (",", "\t", ";", "|")


class Header(NamedTuple):
    """A line that names the columns of a file."""

    path: str
    lines: int  # up to its end
    columns: tuple[str, ...]
    delimiter: str

    @property
    def where(self) -> str:
        return f"{self.path} line {self.lines}"

    def layout(self, row_format: RowFormat) -> RowFormat:
        """A format whose columns are found by their names, wherever they are in the file."""
        needed = {name: None for field in row_format.fields.values() for name in field.columns}
        missing = [name for name in needed if name not in self.columns]
        if missing:
            raise UserError(
                f"{self.where} is a header without the column {listed(missing)} (it has "
                f"{listed(self.columns, 20)}); correct the header, or the names in the config's "
                "rows(), also if the line is a row"
            )
        self.check_once()
        return dataclasses.replace(row_format, columns=self.columns)

    def check_once(self) -> None:
        """Refuses a name that is there twice."""
        if len(set(self.columns)) != len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise UserError(f"{self.where}: the header names the column {twice!r} twice")


def named_header(path: str, wanted: Collection[str]) -> Header:
    """The header of a file without places: its first line, which names columns.

    Divided by a comma, a tab, a semicolon or a bar: by the one that gives most of the names, or
    most columns.
    """
    found = [header for each in _DELIMITERS if (header := first_line(path, each))]
    if not found:
        raise UserError(f"{path} is empty, or its first line is no row; it must name the columns")
    return max(found, key=lambda x: (len(set(wanted) & set(x.columns)), len(x.columns)))


def find_header(path: str, row_format: RowFormat) -> Header | None:
    """The header of a file; None where its first line is a row.

    It is one if half of its cells or more, or of the format's columns if they are fewer, are names
    of columns or fields, in any order. Columns are then found by name, as in a Parquet file.
    """
    first = first_line(path, row_format.delimiter)
    if first is None:
        return None
    known = _names([*row_format.columns, *row_format.fields])
    fewest = min(len(first.columns), len(row_format.columns))
    return first if 0 < fewest <= 2 * len(known & _names(first.columns)) else None


def _names(cells: Collection[str]) -> set[str]:
    """What may be names: rows of numbers would be headers of columns that have numbers as names."""
    return {cell.casefold() for cell in cells if not _is_number(cell)}


def _is_number(text: str) -> bool:
    try:
        float(text or "0")
    except ValueError:
        return False
    return True


def first_line(path: str, delimiter: str) -> Header | None:
    """The cells of the first line that is not blank; None if there is none, or it is no row."""
    for block in row_blocks(path, delimiter):
        for line, row in _cells(block.content, delimiter):
            if isinstance(row, csv.Error):
                return None
            if any(row):
                return Header(path, block.before + line, tuple(row), delimiter)
    return None


def listed(names: Sequence[str], shown: int = 5) -> str:
    """Names for a message."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(repr, names[:shown])) + more


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Some rows of a file."""

    path: str
    before: int  # lines
    content: bytes
    size: int  # bytes that it takes of the file as it is stored
    header: Header | None = None  # None where columns have the places that a format says

    def columns(self, row_format: RowFormat) -> tuple[int, dict[str, Columns]]:
        """Number of rows, and their values by field name; a bad row is a `ValueError`."""
        layout = self._layout(row_format)
        try:
            read = _reader(self.content.decode("utf-8"), layout.delimiter)
            rows = [row for row in read if len(row) > 1 or (row and row[0].strip())]
        except csv.Error as error:
            raise ValueError(str(error)) from None
        if not rows:
            return 0, {}
        if set(map(len, rows)) != {len(layout.columns)}:
            raise ValueError("rows differ in their number of columns")
        cells = dict(zip(layout.columns, zip(*rows, strict=True), strict=True))
        return len(rows), layout.convert_columns(cells)

    def cells(self) -> tuple[list[Sequence[str]], int]:
        """The stripped cells of whole rows, column by column, and how many rows are bad.

        The header names the columns.
        """
        assert self.header is not None
        width = len(self.header.columns)
        rows = [row for _, row in _cells(self.content, self.header.delimiter)]
        whole = [row for row in rows if not isinstance(row, csv.Error) and len(row) == width]
        columns = list(zip(*whole, strict=True)) if whole else [()] * width
        return cast(list[Sequence[str]], columns), len(rows) - len(whole)

    def rows(
        self, row_format: RowFormat, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[tuple[int, Values]]:
        """The good rows one by one: the last line of each, and its values by field name."""
        layout = self._layout(row_format)
        for line, row in _cells(self.content, layout.delimiter):
            try:
                yield self.before + line, self._convert(layout, self.before + line, row)
            except BadRow as bad:
                on_bad_row(bad)

    def where(self, line: int) -> str:
        return f"{self.path} line {line}"

    def _layout(self, row_format: RowFormat) -> RowFormat:
        return self.header.layout(row_format) if self.header else row_format

    def _convert(self, layout: RowFormat, line: int, row: Sequence[str] | csv.Error) -> Values:
        where, names = self.where(line), layout.columns
        if isinstance(row, csv.Error):
            raise BadRow(f"{where}: {row}")
        try:
            if len(row) != len(names):
                raise BadRow(f"{where}: {len(row)} columns, but the format has {len(names)}")
            return layout.convert_row(where, dict(zip(names, row, strict=True)))
        except BadRow as bad:
            if line > 1:
                raise
            shown = ", ".join(names[:10]) + ", …" * (len(names) > 10)
            raise BadRow(f"{bad} (a header would have the names of rows(): {shown})") from None


def row_blocks(
    path: str, delimiter: str, block_bytes: int = BLOCK_BYTES, header: Header | None = None
) -> Iterator[RowBlock]:
    """All rows of a file, in order.

    Args:
        path: A text file, local or `gs://`; gzip when it ends in `.gz`.
    """
    before, counted, rest = header.lines if header else 0, 0, b""
    with _opened(path) as (content, stored):
        for _ in range(before):
            content.readline()
        while True:
            read = content.read(block_bytes)
            held = rest + read
            end = _end_of_rows(held, delimiter) if read else len(held)
            block, rest = held[:end], held[end:]
            if block:
                position = stored.tell()
                yield RowBlock(path, before, block, position - counted, header)
                before += block.count(b"\n")
                counted = position
            if not read:
                return


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A file's content behind its byte order mark, and the file as it is stored."""
    if files.is_directory(path):
        raise UserError(f"{path} is a directory, not a file of rows")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            raw = cast(IO[bytes], file)
            content = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw)
            if content.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                content.seek(0)
            yield content, raw
    except tf.errors.NotFoundError:
        raise UserError(f"{path}: no such file") from None
    except tf.errors.OpError as error:
        raise of_named(error, path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}") from None


def _end_of_rows(content: bytes, delimiter: str) -> int:
    """Where the last row that is certainly whole ends; 0 when there is none."""
    if b'"' not in content:
        return content.rfind(b"\n") + 1
    # Quoted cells may hold line ends: only csv knows where rows end. The last row may continue.
    lines = [0, 0, *(line for line, _ in _rows(content, delimiter))]
    return sum(len(line) + 1 for line in content.split(b"\n")[: lines[-2]])


def _cells(content: bytes, delimiter: str) -> Iterator[tuple[int, Sequence[str] | csv.Error]]:
    """Last line and stripped cells of every row that is not blank, or what is wrong with it."""
    for line, row in _rows(content, delimiter):
        cells = row if isinstance(row, csv.Error) else list(map(str.strip, row))
        if cells and cells != [""]:
            yield line, cells


def _rows(content: bytes, delimiter: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    # Bytes that are not UTF-8 become lone surrogates, which `RowFormat.convert_row` refuses.
    reader = _reader(content.decode("utf-8", errors="surrogateescape"), delimiter)
    while True:
        row: list[str] | csv.Error
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = error
        yield reader.line_num, row


def _reader(text: str, delimiter: str) -> "_csv.Reader":
    lines = io.StringIO(text, newline="\n")
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
