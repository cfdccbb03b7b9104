"""Reads files of rows to predict, laid out by a task, a header or Parquet's columns."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tfps.data import example_encoder, examples, parquet
from tfps.data.feature import Feature
from tfps.data.named_columns import with_missing
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import Header
from tfps.data.row_format import Field, RowFormat
from tfps.errors import UserError, listed
from trainer.datasets.record_columns import ListedColumn, RecordColumns, array_of
from trainer.datasets.row_encoding import BadRows, RowFile, one_by_one
from trainer.datasets.row_layout import Block, RowLayout, check_kept


@dataclasses.dataclass(frozen=True)
class _Layout:
    """One file; a text file's format has kept columns, too, as fields that `_kept_field` names."""

    file: RowFile
    features: Sequence[Feature]
    labels: Sequence[Feature]  # none where the file has none


class PredictionRows:
    """Reads files of rows, each with or without labels.

    Without a row format a header, or Parquet's columns, name the features; `converted` are those,
    and labels, that the format of the model's config makes of other cells.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        labels: Sequence[Feature],
        row_format: RowFormat | None,
        keep: Sequence[str] = (),
        max_bad_rows: int = 0,
        converted: Sequence[str] = (),
    ):
        self._features = features
        self._labels = labels
        self._row_format = row_format
        self._keep = tuple(keep)
        self._bad_rows = BadRows(max_bad_rows)
        self._way_out = "; fix the row"
        if converted:
            self._way_out = (
                f"; rows() of the model's config converts {listed(converted)}: give --config to "
                "read raw rows"
            )

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
        add = functools.partial(self._bad_rows.add, way_out=self._way_out)
        good = list(one_by_one(block, layout.file.row_format, held, add))
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
            columns = parquet.column_names(path)
            labels, layout = self._found(columns)
            check_kept(path, self._keep, columns)
            row_format = layout.of_columns(path, columns)
            return _Layout(RowFile(path, row_format, is_parquet=True), self._features, labels)
        header = RowLayout(self._row_format, tuple(self._features)).header(path)
        if header is None:
            return self._of_places(path, cast(RowFormat, self._row_format))
        labels, layout = self._found(header.columns)
        return self._of_text(path, header.where, layout.of_header(header), labels, header)

    def _found(self, columns: Sequence[str]) -> tuple[Sequence[Feature], RowLayout]:
        """The labels that a file with these columns has, all or none, and where all is in it."""
        layout = RowLayout(self._row_format, (*self._features, *self._labels))
        places = [layout.columns_of(each, columns) for each in self._labels]
        is_labelled = all(places) and any(set(each) & set(columns) for each in places)
        labels = tuple(self._labels) if is_labelled else ()
        return labels, RowLayout(self._row_format, (*self._features, *labels))

    def _of_places(self, path: str, full: RowFormat) -> _Layout:
        """The layout with the labels' columns or without them, whichever the first row has."""
        names = [feature.name for feature in self._features]
        label_names = [label.name for label in self._labels]
        full = with_missing(full, self._features)
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
        check_kept(where, self._keep, row_format.columns)
        as_it_is = cast(Any, str)  # which no record holds, unlike what converters give
        kept = {_kept_field(column): Field((column,), as_it_is) for column in self._keep}
        with_kept = dataclasses.replace(row_format, fields={**row_format.fields, **kept})
        return _Layout(RowFile(path, with_kept, header), self._features, labels)

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
