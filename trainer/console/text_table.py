"""Lays out a table as text."""

from collections.abc import Sequence


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> list[str]:
    """The lines of a table whose columns are as wide as their widest cell.

    Args:
        header: Names of the columns.
        rows: As many cells each.
        right: Numbers of the columns that are aligned right.
    """
    widths = [max(len(row[n]) for row in (header, *rows)) for n in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if n in right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
