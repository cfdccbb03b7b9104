"""What a column is to a model: a number, a category, ids, a date, a text, a list, or nothing."""

import enum
import math
import re

import numpy as np

from trainer.table.column_summary import ColumnSummary

_NEARLY = 0.99  # of the cells, where a few are mistakes
_OWN = 0.95  # of the rows have a value that no other has
_LEAST_ROWS = 100  # from which on that is no chance
_LISTS = 0.2  # of the cells hold a bar, where they are lists
_FEW = 100  # different texts that are categories however long they are
_TEXT = 0.2  # of the texts are different, where they are no categories
_ID_NAME = re.compile(r"(^|[_\W])(id|ids|key|code|zip|zipcode|postcode|plz|uuid|sku)$|[a-z]I[dD]$")
_SKEWED = 5.0  # how far the 99th percentile lies beyond the median, where logarithms are taken


class Kind(enum.StrEnum):
    NUMBER = "number"
    CATEGORY = "category"
    IDS = "ids"
    DATE = "date"
    TEXT = "text"
    LIST = "list"
    CONSTANT = "one value only"
    ROW_ID = "another value in each row"


LEFT_OUT = (Kind.CONSTANT, Kind.ROW_ID)


def kind_of(column: ColumnSummary) -> Kind:
    distinct, held = column.distinct, column.held
    if distinct == 0 or (distinct == 1 and not column.empty):
        return Kind.CONSTANT
    if is_number(column) and not _has_id_name(column):
        return Kind.NUMBER
    if column.dates >= _NEARLY * held:
        return Kind.DATE
    if column.lists >= _LISTS * held and column.parts.exact is not None:
        return Kind.LIST
    if column.is_text and distinct > max(_FEW, _TEXT * held):
        return Kind.TEXT
    if distinct >= _OWN * held and held >= _LEAST_ROWS:
        return Kind.ROW_ID
    return Kind.CATEGORY if column.frequencies.exact is not None else Kind.IDS


def is_number(column: ColumnSummary) -> bool:
    """Whether nearly all cells are numbers; `0123` is a code."""
    known = column.held - column.no_number
    return column.numeric > 0 and column.numeric >= _NEARLY * known and not column.zero_led


def is_integer(column: ColumnSummary) -> bool:
    """Whether every row has an integer."""
    return column.integers == column.rows and not column.zero_led


def takes_logarithm(column: ColumnSummary) -> bool:
    """Whether numbers are so skewed that a model does better with their logarithms."""
    numbers = column.numbers
    middle = numbers.quantile(0.5)
    return numbers.least >= 0 and numbers.quantile(0.99) > _SKEWED * max(middle, 1e-9)


def missing_number(column: ColumnSummary) -> float | None:
    """A number for a missing one, which no row has; None where none is missing."""
    if column.numeric == column.rows:
        return None
    least = column.numbers.least
    return -1.0 if least > -1 else float(np.float32(math.floor(least - max(1.0, -least))))


def _has_id_name(column: ColumnSummary) -> bool:
    """Whether integers are called as ids are."""
    if column.integers < column.held:
        return False
    return bool(_ID_NAME.search(column.name.strip()) or _ID_NAME.search(column.name.lower()))
