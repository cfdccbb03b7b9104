"""How a row of raw text becomes the values of a record."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tfps import arguments
from tfps.data.converters import convert_all
from tfps.errors import UserError, quoted

Value = int | float | bytes | None  # None is missing, which only a feature with a default may be
Values = dict[str, Value | list[Value]]
Cell = str | Sequence[str]
Columns = Sequence[Sequence[Value]] | Sequence[Sequence[Sequence[Value]]]


class BadRow(UserError):  # noqa: N818 - it is what the row is, and callers may count it
    """A row that does not fit its format: the message names file, line, column and reason."""

    empty_field = ""  # whose cell is empty, if that is the reason


@dataclasses.dataclass(frozen=True)
class Field:
    """One feature or label in a row.

    Attributes:
        columns: Names of its columns: one gives shape `()`, n give shape `(n,)`.
        convert: From a stripped cell to a value, which depends on the cell alone; a `ValueError`
            makes the row a bad one. A method `column` of it, if there is one, converts the cells of
            many rows at once: faster, where NumPy can do it.
        separator: Divides the values of a cell that holds any number of them, for shape `(None,)`;
            an empty cell holds none. None for cells that hold one.
    """

    columns: tuple[str, ...]
    convert: Callable[[str], Value]
    separator: str | None = None

    def __post_init__(self) -> None:
        arguments.check_fields(self, "Field(): ")

    @property
    def has_list(self) -> bool:
        return len(self.columns) > 1 or self.separator is not None

    def texts(self, cell: Cell) -> list[str]:
        """The stripped values of a cell, which is a list only for a field with a separator."""
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
            in a Parquet file, columns are found by their names. None of them means that files have
            a header, or are Parquet.
        delimiter: One character between cells; without columns the header shows it.
        fields: From the name of a feature or label to where its values stand; without columns, of
            those alone that are not in a column of their name, as they are.
    """

    columns: tuple[str, ...] = ()
    delimiter: str = ","
    fields: Mapping[str, Field] = dataclasses.field(default_factory=dict)

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
            unknown = [x for x in field.columns if self.columns and x not in self.columns]
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
        """The same layout with the fields of these names alone."""
        missing = [name for name in names if name not in self.fields]
        if missing:
            raise UserError(f"rows(): no field gives {', '.join(map(repr, missing))}; add it")
        return dataclasses.replace(self, fields={name: self.fields[name] for name in names})

    def without(self, names: Sequence[str]) -> "RowFormat":
        """The layout of rows that lack some fields, and the columns that only these have."""
        fields = {name: field for name, field in self.fields.items() if name not in names}
        needed = {column for field in fields.values() for column in field.columns}
        lacking = {
            column for name in names if name in self.fields for column in self.fields[name].columns
        }
        columns = tuple(c for c in self.columns if c in needed or c not in lacking)
        return RowFormat(columns, self.delimiter, fields)

    def convert_columns(self, cells: Mapping[str, Sequence[Cell]]) -> dict[str, Columns]:
        """The values of many rows, by field name: a list per column, each with a value per row.

        For a field with a separator it is one list, with a list per row. A bad cell is a
        `ValueError`; `convert_row` says which it is.
        """
        values: dict[str, Columns] = {}
        for name, field in self.fields.items():
            if field.separator is None:
                of_field = [cast(Sequence[str], cells[column]) for column in field.columns]
                texts = [list(map(str.strip, column)) for column in of_field]
                values[name] = [convert_all(field.convert, column) for column in texts]
            else:
                several = map(field.texts, cells[field.columns[0]])
                values[name] = [[convert_all(field.convert, cell) for cell in several]]
        return values

    def convert_row(self, where: str, cells: Mapping[str, Cell]) -> Values:
        """The values of one row by field name; a bad cell is a `BadRow`, which names `where`."""
        values: Values = {}
        for name, field in self.fields.items():
            several = [
                _value(where, name, column, text, field.convert)
                for column in field.columns
                for text in field.texts(cells[column])
            ]
            if not field.has_list and len(several) != 1:
                raise _no_cell(where, name, field.columns[0], len(several))
            values[name] = several if field.has_list else several[0]
        return values


def _no_cell(where: str, field: str, column: str, count: int) -> BadRow:
    what = f"a list of {count}" if count else "an empty list"
    bad = BadRow(f"{where} column {column}: is {what}, not one value")
    bad.empty_field = "" if count else field
    return bad


def _value(
    where: str, field: str, column: str, text: str, convert: Callable[[str], Value]
) -> Value:
    where = f"{where} column {column}"
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRow(f"{where}: {quoted(text)} is not UTF-8 text") from None
    try:
        return convert(text)
    except ValueError as error:
        bad = BadRow(f"{where}: {quoted(text)} {error}" if text else f"{where}: the cell is empty")
        bad.empty_field = "" if text else field
        raise bad from None
