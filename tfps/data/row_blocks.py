"""Cuts a file of rows into blocks of whole rows, to be read at the same time."""

import csv
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from tfps.data.row_format import BadRow, Columns, RowFormat, Values, text_file
from tfps.errors import UserError

# What a block's rows become fits a core's cache: larger ones take longer per row.
BLOCK_BYTES = 256 << 10


class Header(NamedTuple):
    """A line that names the columns of a file."""

    path: str
    lines: int
    columns: tuple[str, ...]

    def layout(self, row_format: RowFormat) -> RowFormat:
        """A format whose columns are found by their names, wherever they stand in the file."""
        where = f"{self.path} line {self.lines}"
        needed = {name: None for field in row_format.fields.values() for name in field.columns}
        missing = [name for name in needed if name not in self.columns]
        if missing:
            raise UserError(
                f"{where} is a header without the column {listed(missing)} (it has "
                f"{listed(self.columns, 20)}); correct the header, or the names in the config's "
                "rows(), also if the line is a row"
            )
        self.check_once()
        return dataclasses.replace(row_format, columns=self.columns)

    def check_once(self) -> None:
        """Refuses a name that is there twice."""
        if len(set(self.columns)) != len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise UserError(
                f"{self.path} line {self.lines}: the header names the column {twice!r} twice"
            )


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
    with text_file(path) as (content, _):
        texts = (line.decode("utf-8", errors="surrogateescape") for line in content)
        reader = csv.reader(texts, delimiter=delimiter, skipinitialspace=True)
        try:
            rows = (tuple(map(str.strip, row)) for row in reader)
            cells = next((row for row in rows if any(row)), None)
        except csv.Error:
            return None
        return Header(path, reader.line_num, cells) if cells else None


def listed(names: Sequence[str], shown: int = 5) -> str:
    """Names for a message."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(repr, names[:shown])) + more


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Some rows of a file.

    Attributes:
        size: Bytes that it takes of the file as it is stored.
        header: What names the file's columns; None where they stand as a format says.
    """

    path: str
    before: int
    content: bytes
    size: int
    header: Header | None = None

    def lines(self) -> list[str]:
        """Its lines; bytes that are not UTF-8 come as lone surrogates."""
        return _lines(self.content)

    def columns(self, row_format: RowFormat) -> tuple[int, dict[str, Columns]]:
        """Number of rows, and their values by field name."""
        return self._layout(row_format).read_columns(self.content.decode("utf-8"))

    def rows(
        self, row_format: RowFormat, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[tuple[int, Values]]:
        """The rows one by one: the last line of each, and its values by field name."""
        layout = self._layout(row_format)
        return layout.read_lines(self.path, self.lines(), on_bad_row, self.before)

    def _layout(self, row_format: RowFormat) -> RowFormat:
        return self.header.layout(row_format) if self.header else row_format

    def where(self, line: int) -> str:
        """A row by its line, for messages."""
        return f"{self.path} line {line}"


def row_blocks(
    path: str, delimiter: str, block_bytes: int = BLOCK_BYTES, header: Header | None = None
) -> Iterator[RowBlock]:
    """All rows of a file, in order.

    Args:
        path: A text file, local or `gs://`; gzip when it ends in `.gz`.
        header: What stands before the first row and names the columns.
    """
    before, counted, rest = header.lines if header else 0, 0, b""
    with text_file(path) as (content, stored):
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


def _end_of_rows(content: bytes, delimiter: str) -> int:
    """Where the last row that is certainly whole ends; 0 when there is none."""
    if b'"' not in content:
        return content.rfind(b"\n") + 1
    # Quoted cells may hold line ends: only csv knows where rows end. The last row may go on.
    lines = _lines(content)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    ends = [0, 0]
    while True:
        try:
            next(reader)
        except StopIteration:
            break
        except csv.Error:
            pass  # a bad row, and the end of it
        ends.append(reader.line_num)
    return len("".join(lines[: ends[-2]]).encode("utf-8", errors="surrogateescape"))


def _lines(content: bytes) -> list[str]:
    lines = content.split(b"\n")
    last = lines.pop()
    texts = [line.decode("utf-8", errors="surrogateescape") + "\n" for line in lines]
    return [*texts, last.decode("utf-8", errors="surrogateescape")] if last else texts
