"""A table's columns as one file of HTML, which needs nothing else to be shown."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from trainer.page import tables
from trainer.page.chart import decimal_step
from trainer.page.templates import html_templates
from trainer.table.column_kind import Kind, kind_of
from trainer.table.column_summary import ColumnSummary, Frequencies, Numbers
from trainer.table.table_scan import Table
from trainer.table.table_text import HEADER, cells_of, count_of

_BARS = 12
_LEAST, _MOST = 0.01, 0.99  # quantiles between which ranges of numbers are equally wide


class Bar(NamedTuple):
    """A value, or a range of them, and its share of the cells that hold one."""

    text: str
    share: float
    width: float  # percent of the longest bar

    @property
    def shown(self) -> str:
        return f"{self.share:.1%}"


def page(table: Table) -> str:
    """The page of a table, all of it escaped."""
    columns = [(each.name, *_drawn(each)) for each in table.columns.values()]
    templates = html_templates("trainer.table", "trainer.page")
    return templates.get_template("table_page.html.j2").render(
        title=table.data,
        subtitle=count_of(table),
        overview=tables.Table("Columns", HEADER, [*map(cells_of, table.columns.values())]),
        columns=[each for each in columns if each[-1]],
    )


def _drawn(column: ColumnSummary) -> tuple[str, list[Bar]]:
    """What is drawn of a column, and its bars; none where no value is there twice."""
    kind = kind_of(column)
    if kind == Kind.NUMBER and column.distinct > _BARS:
        return "share of the rows by range", _ranges(column.numbers)
    if kind == Kind.LIST:
        return "share of the rows with a value", _most(column.parts, column.held)
    if kind == Kind.TEXT:
        return "share of the words", _most(column.vocabulary, column.words)
    return "share of the rows", _most(column.frequencies, column.held)


def _ranges(numbers: Numbers) -> list[Bar]:
    """Equally wide ranges; the first and the last hold the outliers, too."""
    low, high = numbers.quantile(_LEAST), numbers.quantile(_MOST)
    edges = [low]
    if high > low:
        step = decimal_step((high - low) / _BARS)
        edges = [step * k for k in range(math.floor(low / step) + 1, math.ceil(high / step))]
    texts = [f"below {edges[0]:,.6g}"]
    texts += [f"{a:,.6g} to {b:,.6g}" for a, b in itertools.pairwise(edges)]
    texts.append(f"{edges[-1]:,.6g} and more")
    return _bars(texts, numbers.shares(edges))


def _most(frequencies: Frequencies, total: int) -> list[Bar]:
    """The most frequent values, of those that are there more than once."""
    found = [(value, count) for value, count in frequencies.most(_BARS) if count > 1]
    return _bars([value for value, _ in found], [count / total for _, count in found])


def _bars(texts: Sequence[str], shares: Sequence[float]) -> list[Bar]:
    longest = max(shares, default=1.0)
    return [
        Bar(text, share, round(100 * share / longest, 1))
        for text, share in zip(texts, shares, strict=True)
    ]
