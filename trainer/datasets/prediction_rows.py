"""Rows of text or of Parquet files to predict, as columns of features."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.data import example_encoder, examples
from tfps.data.feature import Feature
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import RowBlock
from tfps.data.row_format import BadRow, Values
from tfps.errors import UserError
from trainer.datasets.record_columns import ListedColumn, RecordColumns, array_of
from trainer.datasets.row_layout import RowLayout, RowLayouts, kept_field


class PredictionRows:
    """Reads files of rows, each with or without labels."""

    def __init__(self, layouts: RowLayouts):
        """Reads no file yet.

        Args:
            layouts: Of the files; as many of all their rows as may be bad are left out.
        """
        self._layouts = layouts
        self._features, self._labels = layouts.features, layouts.labels
        self._max_bad_rows = layouts.max_bad_rows
        self.bad_rows = 0

    def columns(self, path: str, most: int) -> Iterator[RecordColumns]:
        """The good rows of one file, in order, some at once.

        Args:
            path: A text file, gzip when it ends in `.gz`, or a Parquet file; local or `gs://`.
            most: How many of a Parquet file at once; text is read in blocks of so many bytes.
        """
        layout = self._layouts.of(path)
        for block in layout.blocks(most):
            try:
                found = self._at_once(block, layout)
            except (TypeError, ValueError):  # the rows one by one tell what it is, and in which
                found = self._one_by_one(block, layout)
            if found is not None:
                yield found

    def _at_once(self, block: RowBlock | ParquetBlock, layout: RowLayout) -> RecordColumns | None:
        """All rows of a block; a `ValueError` where one is bad, or unusual."""
        count, values = block.columns(layout.row_format)
        if not count:
            return None
        features, labels = (
            {each.name: example_encoder.batch_of(each, values[each.name]) for each in some}
            for some in (self._features, self._labels_of(layout))
        )
        if isinstance(block, ParquetBlock):
            kept = {name: block.batch.column(name) for name in layout.keep}
        else:
            kept = {name: _text_column(values[kept_field(name)][0]) for name in layout.keep}
        where = block.where(block.before + 1)
        return RecordColumns(where, count, features, labels, kept)

    def _one_by_one(
        self, block: RowBlock | ParquetBlock, layout: RowLayout
    ) -> RecordColumns | None:
        """The good rows of a block, if there are any."""
        numbers: list[int] = []
        rows: list[Values] = []
        records: list[bytes] = []
        for number, values in block.rows(layout.row_format, self._leave_out):
            try:
                records.append(examples.encode(values, self._features, self._labels_of(layout)))
            except UserError as error:
                self._leave_out(BadRow(f"{block.where(number)}: {error}"))
                continue
            numbers.append(number)
            rows.append(values)
        if not rows:
            return None
        parsed = examples.parse(tf.constant(records), self._features, self._labels_of(layout))
        features, labels = ({name: array_of(v) for name, v in some.items()} for some in parsed)
        if isinstance(block, ParquetBlock):
            good = np.array(numbers) - block.before - 1
            kept = {name: block.batch.column(name).take(good) for name in layout.keep}
        else:
            kept = {
                name: _text_column([row[kept_field(name)] for row in rows]) for name in layout.keep
            }
        where = block.where(numbers[0])
        return RecordColumns(where, len(rows), features, labels, kept)

    def _labels_of(self, layout: RowLayout) -> Sequence[Feature]:
        return self._labels if layout.is_labelled else ()

    def _leave_out(self, bad: BadRow) -> None:
        self.bad_rows += 1
        if self.bad_rows > self._max_bad_rows:
            raise UserError(
                f"{bad}; mend the row, or leave bad rows out with --max_bad_rows={self.bad_rows} "
                "or more"
            )


def _text_column(texts: Sequence[Any]) -> ListedColumn:
    return ListedColumn(texts, "string")
