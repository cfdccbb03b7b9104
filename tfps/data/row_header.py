"""The first line of a file of rows, where it names the columns."""

import csv
import dataclasses
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tfps.data.row_format import RowFormat
from tfps.data.text_file import text_file
from tfps.errors import UserError


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
