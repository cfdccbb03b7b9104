"""Lays out tables as text, no wider than the terminal that they are written to."""

import io
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNBOUNDED = 100_000  # columns where no terminal is: a line is a line
_BETWEEN = (0, 2, 0, 0)


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> list[str]:
    """The lines of a table whose columns are as wide as their widest cell."""
    table = Table(box=None, padding=_BETWEEN, pad_edge=False)
    for number, name in enumerate(header):
        justify = "right" if number in right else "left"
        table.add_column(Text(name), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))
    return _lines(table)


def named_texts(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """The lines of texts with their names in front.

    Args:
        width: That the names take at least.
    """
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(min_width=width, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name), Text(text))
    return _lines(grid)


def _lines(table: Table) -> list[str]:
    file = io.StringIO()
    columns = Console().width if sys.stdout.isatty() else _UNBOUNDED
    console = Console(
        file=file, width=columns, color_system=None, legacy_windows=False, force_jupyter=False
    )
    console.print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]
