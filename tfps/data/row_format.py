"""How a row of raw text becomes the values of a record."""

import codecs
import contextlib
import csv
import dataclasses
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, cast

import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError, quoted
from tfps.storage import files

Value = int | float | bytes
Values = dict[str, Value | list[Value]]
Cell = str | Sequence[str]
Columns = Sequence[Sequence[Value]] | Sequence[Sequence[Sequence[Value]]]


@contextlib.contextmanager
def text_file(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Opens a file behind its byte order mark; also for what goes wrong while it is read.

    Args:
        path: A file, local or `gs://`; gzip when it ends in `.gz`.
    """
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
        raise UserError(f"{path} cannot be read: {error.message}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}") from None


class BadRow(UserError):  # noqa: N818 - it is what the row is, and callers may count it
    """A row that does not fit its format: the message names file, line, column and reason."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One feature or label in a row.

    Attributes:
        columns: Where its values stand: one column gives shape `()`, n columns shape `(n,)`.
        convert: From a stripped cell to a value, which depends on the cell alone; a `ValueError`
            makes the row a bad one. If it has a method `column`, that is given the cells of many
            rows at once and returns their values: faster, where NumPy can do it.
        separator: What stands between the values of a cell that holds any number of them, for
            shape `(None,)`; an empty cell holds none. None for cells that hold one.
    """

    columns: tuple[str, ...]
    convert: Callable[[str], Value]
    separator: str | None = None

    def __post_init__(self) -> None:
        arguments.check_fields(self, "Field(): ")

    @property
    def has_list(self) -> bool:
        """Whether its value is a list."""
        return len(self.columns) > 1 or self.separator is not None

    def convert_all(self, texts: Sequence[str]) -> Sequence[Value]:
        """The values of many stripped cells."""
        column = getattr(self.convert, "column", None)
        return column(texts) if column else list(map(self.convert, texts))

    def texts(self, cell: Cell) -> list[str]:
        """The values that stand in a cell, stripped; a list only for a field with a separator."""
        if isinstance(cell, str):
            cell = cell.strip()
            if self.separator is None:
                return [cell]
            cell = cell.split(self.separator) if cell else []
        return [text.strip() for text in cell]


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """The layout of a CSV or TSV file.

    Attributes:
        columns: Names of all columns, in the order of a file without a header; under a header, and
            in a Parquet file, columns are found by their names.
        delimiter: One character between cells.
        fields: From the name of a feature or label to where its values stand.
    """

    columns: tuple[str, ...]
    delimiter: str
    fields: Mapping[str, Field]

    def __post_init__(self) -> None:
        arguments.check_fields(self, "RowFormat(): ")
        if len(set(self.columns)) != len(self.columns):
            raise UserError("rows(): a column is named twice")
        if len(self.delimiter) != 1 or self.delimiter in '\r\n"\0':
            raise UserError(
                f"rows(): delimiter={self.delimiter!r} must be one character that no row holds "
                "otherwise, such as ',' or '\\t'"
            )
        for name, field in self.fields.items():
            unknown = [column for column in field.columns if column not in self.columns]
            if unknown or not field.columns:
                raise UserError(
                    f"rows(): field {name!r} needs columns of the format, but has "
                    f"{', '.join(unknown) or 'none'}"
                )
            if field.separator is not None and (not field.separator or len(field.columns) > 1):
                raise UserError(
                    f"rows(): field {name!r} needs a separator of a character or more, and only "
                    "one column that it divides"
                )

    def only(self, names: Sequence[str]) -> "RowFormat":
        """The same layout, of which only the fields of these names are converted.

        Raises:
            UserError: If a name has no field.
        """
        missing = [name for name in names if name not in self.fields]
        if missing:
            raise UserError(f"rows(): no field gives {', '.join(map(repr, missing))}; add it")
        return dataclasses.replace(self, fields={name: self.fields[name] for name in names})

    def without(self, names: Sequence[str]) -> "RowFormat":
        """The layout of rows that lack some fields, and the columns of which no other field is.

        Args:
            names: Of the fields, which may be none of the layout's.
        """
        fields = {name: field for name, field in self.fields.items() if name not in names}
        needed = {column for field in fields.values() for column in field.columns}
        lacking = {
            column for name in names if name in self.fields for column in self.fields[name].columns
        }
        columns = tuple(c for c in self.columns if c in needed or c not in lacking)
        return RowFormat(columns, self.delimiter, fields)

    def read(
        self, path: str, on_bad_row: Callable[[BadRow], None] | None = None
    ) -> Iterator[tuple[int, Values]]:
        """Reads a file as `csv` does, cells stripped and blank lines left out.

        Args:
            path: A text file in UTF-8, local or `gs://`; gzip when it ends in `.gz`.
            on_bad_row: Called for every bad row, which is then left out; without it the first
                one is raised.

        Yields:
            The line number (from 1; the last line of a row that spans several), and the values by
            field name: one value, or a list for a field of several columns or with a separator.

        Raises:
            BadRow: A row does not fit, and `on_bad_row` is not given.
            UserError: The file cannot be read.
        """
        return self.read_lines(path, _lines(path), on_bad_row)

    def read_lines(
        self,
        path: str,
        lines: Iterable[str],
        on_bad_row: Callable[[BadRow], None] | None = None,
        before: int = 0,
    ) -> Iterator[tuple[int, Values]]:
        """Reads lines of a file as `read` does.

        Args:
            path: The file, for messages.
            lines: Some of its lines, of whole rows.
            on_bad_row: As for `read`.
            before: Number of lines before them.

        Yields:
            What `read` yields.
        """
        cells = _cells(lines, self.delimiter)
        while True:
            try:
                line, row = next(cells)
                line += before
                values = self._convert(path, line, row)
            except StopIteration:
                return
            except BadRow as bad:
                if on_bad_row is None:
                    raise
                on_bad_row(bad)
                continue
            yield line, values

    def read_columns(self, text: str) -> tuple[int, dict[str, Columns]]:
        """Reads good rows all at once, a column after the other, which is faster.

        Args:
            text: Lines of a file, of whole rows, without lone surrogates.

        Returns:
            Number of rows, and by field name the values: a list per column, each with one value
            per row; for a field with a separator one list with a list per row.

        Raises:
            ValueError: If a row is bad, or blank in an unusual way; `read_lines` knows which.
        """
        columns = _split_unquoted(text, self.delimiter, len(self.columns))
        if columns is None:
            columns = self._columns_of_csv(text)
        if not columns:
            return 0, {}
        cells = dict(zip(self.columns, columns, strict=True))
        return len(columns[0]), self.convert_columns(cells)

    def _columns_of_csv(self, text: str) -> list[Sequence[str]]:
        """The cells by column; none where there is no row."""
        lines = io.StringIO(text, newline="\n")
        reader = csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True)
        try:
            rows = [row for row in reader if row]
        except csv.Error as error:
            raise ValueError(str(error)) from None
        if len(self.columns) == 1 or any(len(row) != len(self.columns) for row in rows):
            raise ValueError("rows differ in their number of columns")
        return list(zip(*rows, strict=True))

    def convert_columns(self, cells: Mapping[str, Sequence[Cell]]) -> dict[str, Columns]:
        """The values of many rows, as `read_columns` returns them.

        Args:
            cells: By column name, each with as many cells, all of them text.

        Raises:
            ValueError: If a cell is bad; `convert_row` knows which.
        """
        values: dict[str, Columns] = {}
        for name, field in self.fields.items():
            if field.separator is None:
                of_field = [cast(Sequence[str], cells[column]) for column in field.columns]
                texts = [list(map(str.strip, column)) for column in of_field]
                values[name] = list(map(field.convert_all, texts))
            else:
                several = map(field.texts, cells[field.columns[0]])
                values[name] = [list(map(field.convert_all, several))]
        return values

    def convert_row(self, where: str, cells: Mapping[str, Cell]) -> Values:
        """The values of one row by field name.

        Args:
            where: Names the row in messages.
            cells: By column name.

        Raises:
            BadRow: If a cell is bad.
        """
        values: Values = {}
        for name, field in self.fields.items():
            several = [
                _value(where, column, text, field.convert)
                for column in field.columns
                for text in field.texts(cells[column])
            ]
            values[name] = several if field.has_list else several[0]
        return values

    def _convert(self, path: str, line: int, row: Sequence[str] | csv.Error) -> Values:
        where = f"{path} line {line}"
        if isinstance(row, csv.Error):
            raise BadRow(f"{where}: {row}")
        try:
            if len(row) != len(self.columns):
                raise BadRow(f"{where}: {len(row)} columns, but the format has {len(self.columns)}")
            return self.convert_row(where, dict(zip(self.columns, row, strict=True)))
        except BadRow as bad:
            if line > 1:
                raise
            names = ", ".join(self.columns[:10]) + ", …" * (len(self.columns) > 10)
            raise BadRow(f"{bad} (a header would have the names of rows(): {names})") from None


def _value(where: str, column: str, text: str, convert: Callable[[str], Value]) -> Value:
    where = f"{where} column {column}"
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRow(f"{where}: {quoted(text)} is not UTF-8 text") from None
    try:
        return convert(text)
    except ValueError as error:
        raise BadRow(f"{where}: {quoted(text)} {error}") from None


def _split_unquoted(text: str, delimiter: str, width: int) -> list[Sequence[str]] | None:
    """The cells by column, where neither quotes nor blank lines make rows more than that."""
    if not text or '"' in text or text.count("\r") != text.count("\r\n"):
        return None
    text = text if text.endswith("\n") else f"{text}\n"
    rows = text.count("\n")
    # Each line's end becomes a cell of its own: behind so many cells, or rows differ.
    cells = text.replace("\n", f"{delimiter}\n{delimiter}").split(delimiter)
    if len(cells) != rows * (width + 1) + 1 or cells[width :: width + 1].count("\n") != rows:
        return None
    columns = [cells[index : -1 : width + 1] for index in range(width)]
    # A line of spaces is no row, and only with one column not known by its cells' number.
    return None if width == 1 and not all(map(str.strip, columns[0])) else list(columns)


def _cells(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, Sequence[str] | csv.Error]]:
    """Line number and stripped cells of every row, or what csv found wrong with it."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    while True:
        try:
            row = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, error
            continue
        if row and row != [""]:
            yield reader.line_num, row


def _lines(path: str) -> Iterator[str]:
    """Lines of a file; bytes that are not UTF-8 come as lone surrogates, which `_value` refuses."""
    with text_file(path) as (content, _):
        for line in content:
            yield line.decode("utf-8", errors="surrogateescape")
