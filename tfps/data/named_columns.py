"""Rows of a file whose columns have the names of features: what a task without `rows()` reads."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from tfps.data.converters import BY_DTYPE, optional
from tfps.data.feature import Feature
from tfps.data.row_format import Field, RowFormat

SEPARATOR = "|"  # between the values of a cell, for features that have many
# What programs write for a number that is missing.
NO_NUMBER = ("NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")


def field_of(feature: Feature, columns: Collection[str]) -> Field:
    """The field of a feature in a file with these columns.

    A vector is `NAME` with its values divided by `|` or in a list, where there is that column, else
    `NAME_0`, `NAME_1`, and so on.
    """
    own = (feature.name,)
    convert = BY_DTYPE[feature.dtype]
    if feature.is_ragged or (feature.shape and feature.name in columns):
        return Field(own, convert, SEPARATOR)
    names = tuple(f"{feature.name}_{index}" for index in range(feature.size or 1))
    return Field(names if feature.shape else own, convert)


def named_format(
    features: Sequence[Feature],
    columns: Sequence[str],
    delimiter: str = ",",
    given: Mapping[str, Field] | None = None,
) -> RowFormat:
    """The format of a file with these columns; features that have no given field name theirs."""
    fields = {each.name: field_of(each, columns) for each in features} | dict(given or {})
    used = tuple({column: None for field in fields.values() for column in field.columns})
    return with_missing(RowFormat(used, delimiter, fields), features, NO_NUMBER)


def with_missing(
    row_format: RowFormat, features: Sequence[Feature], no_number: Collection[str] = ()
) -> RowFormat:
    """The format in which an empty cell of a feature with a default is a missing value."""
    fields = dict(row_format.fields)
    for feature in features:
        field = fields[feature.name]
        if feature.default is not None and field.separator is None:
            tokens = () if feature.dtype == "string" else no_number
            fields[feature.name] = dataclasses.replace(
                field, convert=optional(field.convert, tokens)
            )
    return dataclasses.replace(row_format, fields=fields)


def converted(row_format: RowFormat | None, features: Sequence[Feature]) -> list[str]:
    """Features that a format makes of a cell, so that nobody who has the cell has the value.

    A vector is none if its values are each in a column, as they are.
    """
    fields = row_format.fields if row_format else {}
    return [
        each.name for each in features if each.name in fields and _converts(fields[each.name], each)
    ]


def _converts(field: Field, feature: Feature) -> bool:
    if feature.dtype == "string":
        return field.convert not in (BY_DTYPE["string"], str.encode)
    return field.convert is not BY_DTYPE[feature.dtype] and field.convert not in (int, float)
