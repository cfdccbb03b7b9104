"""Reads files of rows to predict, laid out by a task, a header or Parquet's columns."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tfps.data import example_encoder, examples, parquet
from tfps.data.converters import integer, number
from tfps.data.feature import Feature
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import Header, find_header, first_line, listed
from tfps.data.row_format import Field, RowFormat, Value
from tfps.errors import UserError
from trainer.datasets.record_columns import ListedColumn, RecordColumns, array_of
from trainer.datasets.row_encoding import BadRows, Block, RowFile, one_by_one

_CONVERTERS: dict[str, Callable[[str], Value]] = {
    "int64": integer,
    "float32": number,
    "string": lambda text: text.encode("utf-8"),
}
_SEPARATOR = "|"  # between the values of a cell, for features that vary in length


@dataclasses.dataclass(frozen=True)
class _Layout:
    """One file; a text file's format has kept columns, too, as fields that `_kept_field` names."""

    file: RowFile
    features: Sequence[Feature]
    labels: Sequence[Feature]  # none where the file has none


class PredictionRows:
    """Reads files of rows, each with or without labels.

    Without a row format a header, or Parquet's columns, name the features; text is divided by
    commas, in `.tsv` files by tabs.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        labels: Sequence[Feature],
        row_format: RowFormat | None,
        keep: Sequence[str] = (),
        max_bad_rows: int = 0,
    ):
        self._features = features
        self._labels = labels
        self._row_format = row_format
        self._keep = tuple(keep)
        self._bad_rows = BadRows(max_bad_rows)

    @property
    def bad_rows(self) -> int:
        return self._bad_rows.count

    def columns(self, path: str, most: int) -> Iterator[RecordColumns]:
        """The good rows of one file in order, of Parquet at most `most` at once."""
        layout = self._layout(path)
        for block in layout.file.blocks(self._keep, most):
            try:
                found = self._at_once(block, layout)
            except (TypeError, ValueError):  # which row it is, they say one by one
                found = self._one_by_one(block, layout)
            if found is not None:
                yield found

    def _at_once(self, block: Block, layout: _Layout) -> RecordColumns | None:
        """All rows of a block; a `ValueError` where one is bad, or unusual."""
        count, values = block.columns(layout.file.row_format)
        if not count:
            return None
        features, labels = (
            {each.name: example_encoder.batch_of(each, values[each.name]) for each in some}
            for some in (layout.features, layout.labels)
        )
        if isinstance(block, ParquetBlock):
            kept = {name: block.batch.column(name) for name in self._keep}
        else:
            kept = {name: _texts(values[_kept_field(name)][0]) for name in self._keep}
        return RecordColumns(block.where(block.before + 1), count, features, labels, kept)

    def _one_by_one(self, block: Block, layout: _Layout) -> RecordColumns | None:
        """The good rows of a block, if there are any."""
        held = (*layout.features, *layout.labels)
        good = list(one_by_one(block, layout.file.row_format, held, self._bad_rows.add))
        if not good:
            return None
        numbers, rows, records = zip(*good, strict=True)
        parsed = examples.parse(tf.constant(records), layout.features, layout.labels)
        features, labels = ({name: array_of(v) for name, v in some.items()} for some in parsed)
        if isinstance(block, ParquetBlock):
            places = np.array(numbers) - block.before - 1
            kept = {name: block.batch.column(name).take(places) for name in self._keep}
        else:
            kept = {name: _texts([row[_kept_field(name)] for row in rows]) for name in self._keep}
        return RecordColumns(block.where(numbers[0]), len(rows), features, labels, kept)

    def _layout(self, path: str) -> _Layout:
        if parquet.is_parquet(path):
            return self._of_parquet(path)
        if self._row_format is None:
            return self._of_header(path)
        if header := find_header(path, self._row_format):
            fields, labels = self._fields(header.columns)
            row_format = header.layout(dataclasses.replace(self._row_format, fields=fields))
            return self._of_text(path, path, row_format, labels, header)
        return self._of_places(path, self._row_format)

    def _of_parquet(self, path: str) -> _Layout:
        columns = parquet.column_names(path)
        fields, labels = self._fields(columns, vectors_are_lists=True)
        self._check_kept(path, columns)
        wanted = tuple({column: None for each in fields.values() for column in each.columns})
        missing = [column for column in wanted if column not in columns]
        if missing and self._row_format is None:
            raise UserError(
                f"{path}: the columns do not name the model's features: it lacks "
                f"{listed(missing)} (it has {listed(columns)}). Rename them, or give --config"
            )
        file = RowFile(path, RowFormat(wanted, ",", fields), is_parquet=True)
        return _Layout(file, self._features, labels)

    def _of_header(self, path: str) -> _Layout:
        """The layout that a file's header describes."""
        delimiter = "\t" if path.removesuffix(".gz").endswith(".tsv") else ","
        header = first_line(path, delimiter)
        if header is None:
            raise UserError(
                f"{path} is empty, or its first line is no row; it must name the features"
            )
        fields, labels = self._fields(header.columns)
        self._check_kept(header.where, header.columns)
        wanted = [column for field in fields.values() for column in field.columns]
        _check_header(header, wanted, self._keep)
        header.check_once()
        row_format = RowFormat(header.columns, delimiter, fields)
        return self._of_text(path, header.where, row_format, labels, header)

    def _of_places(self, path: str, full: RowFormat) -> _Layout:
        """The layout with the labels' columns or without them, whichever the first row has."""
        names = [feature.name for feature in self._features]
        label_names = [label.name for label in self._labels]
        features_only = full.only(names)
        if any(name not in full.fields for name in label_names):
            return self._of_text(path, path, features_only, ())
        full = full.only([*names, *label_names])
        unlabelled = full.without(label_names)
        if self._fits(path, full) or not self._fits(path, unlabelled):
            return self._of_text(path, path, full, self._labels)
        return self._of_text(path, path, unlabelled, ())

    def _of_text(
        self,
        path: str,
        where: str,
        row_format: RowFormat,
        labels: Sequence[Feature],
        header: Header | None = None,
    ) -> _Layout:
        self._check_kept(where, row_format.columns)
        as_it_is = cast(Any, str)  # which no record holds, unlike what converters give
        kept = {_kept_field(column): Field((column,), as_it_is) for column in self._keep}
        with_kept = dataclasses.replace(row_format, fields={**row_format.fields, **kept})
        return _Layout(RowFile(path, with_kept, header), self._features, labels)

    def _fields(
        self, columns: Sequence[str], vectors_are_lists: bool = False
    ) -> tuple[Mapping[str, Field], Sequence[Feature]]:
        """The fields of a file with these columns, and the labels that it has: all, or none."""
        if self._row_format is None:
            lists = columns if vectors_are_lists else ()
            known = {each.name: _field(each, lists) for each in (*self._features, *self._labels)}
        else:
            self._row_format.only([each.name for each in self._features])
            known = dict(self._row_format.fields)
        of_labels = [known[each.name] for each in self._labels if each.name in known]
        is_labelled = len(of_labels) == len(self._labels) and any(
            set(field.columns) & set(columns) for field in of_labels
        )
        labels = self._labels if is_labelled else ()
        return {each.name: known[each.name] for each in (*self._features, *labels)}, labels

    def _check_kept(self, where: str, columns: Sequence[str]) -> None:
        missing = [column for column in self._keep if column not in columns]
        if missing:
            raise UserError(
                f"{where}: there is no column {listed(missing)}, which --keep names; the columns "
                f"are {listed(columns, 20)}"
            )

    def _fits(self, path: str, row_format: RowFormat) -> bool:
        """Whether a row has the layout's number of columns, before too many have not."""
        bad_rows = BadRows(self._bad_rows.allowed)
        of_any_cells = dataclasses.replace(row_format, fields={})
        blocks = RowFile(path, of_any_cells).blocks()
        try:
            return any(True for block in blocks for _ in block.rows(of_any_cells, bad_rows.add))
        except UserError:
            return False


def _kept_field(column: str) -> str:
    """The name of the field that copies a text file's column; features have others."""
    return f"--keep={column}"


def _texts(cells: Sequence[Any]) -> ListedColumn:
    return ListedColumn(cells, "string")


def _field(feature: Feature, lists: Sequence[str]) -> Field:
    """Where a feature is: NAME, or NAME_0, NAME_1, … for a vector; in a list if NAME is one."""
    own: tuple[str, ...] = (feature.name,)
    convert = _CONVERTERS[feature.dtype]
    if feature.is_ragged:
        return Field(own, convert, _SEPARATOR)
    if feature.size is None or not feature.shape:
        return Field(own, convert)
    if feature.name in lists:
        return Field(own, convert, _SEPARATOR)
    return Field(tuple(f"{feature.name}_{index}" for index in range(feature.size)), convert)


def _check_header(header: Header, wanted: Sequence[str], keep: Sequence[str]) -> None:
    """Refuses a header that lacks a column, or has an unknown one."""
    missing = [name for name in wanted if name not in header.columns]
    unknown = [name for name in header.columns if name not in wanted and name not in keep]
    if missing or unknown:
        parts = [
            f"{text} {listed(names)}"
            for text, names in (("it lacks", missing), ("it has the unknown", unknown))
            if names
        ]
        raise UserError(
            f"{header.where}: the header does not name the model's features: "
            f"{' and '.join(parts)}. Correct it, copy other columns with --keep, or, for a file "
            "without a header, give --config"
        )
