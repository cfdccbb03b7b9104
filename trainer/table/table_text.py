"""A table's columns as text."""

from trainer.console.text_table import text_table
from trainer.table.column_kind import Kind, kind_of
from trainer.table.column_summary import ColumnSummary
from trainer.table.table_scan import Table

HEADER = (
    "column",
    "kind",
    "missing",
    "distinct",
    "most frequent",
    "least",
    "median",
    "most",
    "mean",
)
_RIGHT = (2, 3, 5, 6, 7, 8)
_SHOWN_CHARACTERS = 24


def cells_of(column: ColumnSummary) -> tuple[str, ...]:
    """What is shown of a column."""
    kind, frequencies = kind_of(column), column.frequencies
    missing = column.empty + (column.no_number if kind == Kind.NUMBER else 0)
    about = "" if frequencies.exact is not None else "~"
    return (
        column.name,
        kind.value,
        f"{missing / column.rows:.1%}" if missing else "",
        f"{about}{column.distinct:,}",
        _most_frequent(column),
        *_numbers(column, kind),
    )


def table_lines(table: Table) -> list[str]:
    rows = [cells_of(column) for column in table.columns.values()]
    return [f"{table.data}: {count_of(table)}", "", *text_table(HEADER, rows, _RIGHT)]


def count_of(table: Table) -> str:
    """How many rows a table has."""
    bad = f", {table.bad_rows:,} bad ones left out" if table.bad_rows else ""
    return f"{table.rows:,} rows{bad}"


def _most_frequent(column: ColumnSummary) -> str:
    found = column.frequencies.most(1)
    if not found or found[0][1] <= 1:
        return ""
    [(value, count)] = found
    shown = value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}…"
    return f"{shown!r} {count / column.rows:.1%}"


def _numbers(column: ColumnSummary, kind: Kind) -> tuple[str, ...]:
    if kind == Kind.DATE:
        return column.first_date, "", column.last_date, ""
    if kind != Kind.NUMBER:
        return "", "", "", ""
    numbers = column.numbers
    found = (numbers.least, numbers.quantile(0.5), numbers.most, numbers.moments.mean)
    return tuple(f"{number:.5g}" for number in found)
