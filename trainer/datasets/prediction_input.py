"""The records to predict, whatever they come in: a dataset, TFRecord files, or files of rows."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfps.data import example_encoder, examples, manifest, tfrecord
from tfps.data.feature import Feature
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import RowBlock
from tfps.data.row_format import BadRow, RowFormat, Values
from tfps.data.schema import Schema, refuse_missing
from tfps.errors import UserError, listed
from tfps.export.loaded_model import ExportedModel
from tfps.storage import files
from trainer.datasets import data_files
from trainer.datasets.record_columns import ListedColumn, RecordBatch, RecordColumns, array_of
from trainer.datasets.row_layout import RowLayout, RowLayouts, kept_field

_DTYPES = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}
FORMATS = ("auto", "dataset", *data_files.KINDS)
_READ_BYTES = 8 << 20


class KeptFeatures:
    """Features to copy, of which the first record says what they hold.

    Attributes:
        others: Those that are to be parsed besides the model's; known after `resolve`.
    """

    def __init__(self, names: Sequence[str], known: Sequence[Feature]):
        self.others: tuple[Feature, ...] = ()
        self._names = names
        self._known = {feature.name for feature in known}
        self._scalars: set[str] = set()
        self._is_resolved = False

    def resolve(self, batch: RecordBatch) -> None:
        """Looks at the first record of all, once."""
        if self._is_resolved:
            return
        self._is_resolved = True
        held = batch.example(0).features.feature if self._names else {}
        others = []
        for name in self._names:
            kind = held[name].WhichOneof("kind") if name in held else None
            if kind is None:
                raise UserError(
                    f"{batch.where(0)} has no {name!r}, which --keep names (it has "
                    f"{listed(sorted(held))})"
                )
            if name not in self._known:
                others.append(Feature(name, _DTYPES[kind], (None,)))
                if len(getattr(held[name], kind).value) == 1:
                    self._scalars.add(name)
        self.others = tuple(others)

    def columns(self, batch: RecordBatch, parsed: Mapping[str, Any]) -> dict[str, Any]:
        """The columns to copy, as `RecordColumns.kept`."""
        # A later file without labels is refused as such by those who read them all.
        names = [name for name in self._names if name in parsed]
        return {name: self._column(batch, name, parsed[name]) for name in names}

    def _column(self, batch: RecordBatch, name: str, values: tf.Tensor | tf.RaggedTensor) -> Any:
        if not isinstance(values, tf.RaggedTensor):
            return array_of(values)
        flat: list[Any] = values.values.numpy().tolist()
        ends = values.row_splits.numpy()
        if values.dtype == tf.string:
            flat = [_text(batch, name, values, index, cell) for index, cell in enumerate(flat)]
        sizes = np.diff(ends)
        if name not in self._scalars:
            lists = [flat[end - size : end] for size, end in zip(sizes, ends[1:], strict=True)]
            return ListedColumn(lists, values.dtype.name, holds_lists=True)
        if (sizes > 1).any():
            at = int(np.argmax(sizes > 1))
            raise UserError(
                f"{batch.where(at)} holds {sizes[at]} values in {name!r}, but the first record "
                "one; leave it out of --keep"
            )
        cells = iter(flat)
        return ListedColumn([next(cells) if size else None for size in sizes], values.dtype.name)


def _text(batch: RecordBatch, name: str, values: tf.RaggedTensor, index: int, cell: bytes) -> str:
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        at = int(values.value_rowids()[index])
        raise UserError(
            f"{batch.where(at)} holds bytes that are no UTF-8 text in {name!r}; leave it out of "
            "--keep"
        ) from None


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
                f"{bad}; hint the row, or leave bad rows out with --max_bad_rows={self.bad_rows} "
                "or more"
            )


def _text_column(texts: Sequence[Any]) -> ListedColumn:
    return ListedColumn(texts, "string")


class PredictionInput:
    """Records to predict, in the order of their files."""

    def __init__(
        self,
        data: str,
        paths: Sequence[str],
        reader: "PredictionRows | _PredictionRecords",
        total: int | None = None,
    ):
        self.data = data
        self.total = total
        self._paths = paths
        self._reader = reader

    @classmethod
    def find(
        cls,
        data: str,
        data_format: str,
        model: ExportedModel,
        row_format: RowFormat | None = None,
        keep: Sequence[str] = (),
        max_bad_rows: int = 0,
    ) -> Self:
        """Finds the files and what they are.

        Args:
            data: A dataset's directory, or a file, a glob or a directory of TFRecords, text or
                Parquet files; local or `gs://`.
            data_format: One of `FORMATS`; "auto" tells by names and content.
            model: Whose features every record must hold, and whose labels it may hold too.
            row_format: How rows become records; None where their columns name the features.
        """
        twice = [name for name in keep if keep.count(name) > 1]
        if twice:
            raise UserError(f"--keep names {twice[0]!r} twice")
        total = None
        try:
            found = format_of(data) if data_format == "auto" else data_format
            if found == "dataset":
                dataset = manifest.read(data, "--data")
                model.check_schema(dataset.features, dataset.labels, f"--data={data}")
                refuse_missing(
                    dataset.counts, dataset.records, Schema(model.features, ()), f"--data={data}"
                )
                total = dataset.records
                paths = [dataset.path_of(shard) for shard in dataset.shards if shard.records]
            elif found == "parquet":
                paths = data_files.find_parquet(data, "--data")
            elif found == "tfrecord":
                paths = data_files.find_records(data, "--data")
            else:
                paths = data_files.find(data, "--data")
        except tf.errors.OpError as error:
            raise UserError(f"--data={data} cannot be read: {error.message}") from None
        if found in ("csv", "parquet"):
            layouts = RowLayouts(model.features, model.labels, row_format, keep, max_bad_rows)
            return cls(data, paths, PredictionRows(layouts), total)
        if row_format is not None:
            raise UserError(
                f"--data={data} holds records already, which --config does not apply to; leave "
                "--config out, or say --format=csv"
            )
        return cls(data, paths, _PredictionRecords(model, keep), total)

    @property
    def bad_rows(self) -> int:
        """How many rows were left out so far."""
        return self._reader.bad_rows

    def columns(self, most: int) -> Iterator[RecordColumns]:
        """All records in order, some of one file at once.

        Args:
            most: How many at once, at most; of text files, as many as a block of bytes holds.
        """
        is_labelled: bool | None = None
        for path in self._paths:
            for found in self._reader.columns(path, most):
                if is_labelled is None:
                    is_labelled = bool(found.labels)
                _refuse_other_labels(found, is_labelled)
                yield found


def _refuse_other_labels(found: RecordColumns, is_labelled: bool) -> None:
    """Refuses records with labels behind some without, and the other way round."""
    if bool(found.labels) != is_labelled:
        states = ("has no label", "have one") if is_labelled else ("has a label", "have none")
        raise UserError(
            f"{found.where} {states[0]}, but the records before it {states[1]}; predict them in "
            "two runs"
        )


class _PredictionRecords:
    """Reads TFRecord files.

    Attributes:
        bad_rows: How many were left out: none, for a bad record ends the run.
    """

    bad_rows = 0

    def __init__(self, model: ExportedModel, keep: Sequence[str]):
        self._model = model
        self._kept = KeptFeatures(keep, (*model.features, *model.labels))

    def columns(self, path: str, most: int) -> Iterator[RecordColumns]:
        """The records of one file in order, so many at once."""
        for batch in _record_batches(path, most):
            self._kept.resolve(batch)
            is_labelled = batch.has_labels(self._model.labels)
            labels = self._model.labels if is_labelled else ()
            inputs, others = batch.parse(self._model.features, (*labels, *self._kept.others))
            yield RecordColumns(
                batch.where(0),
                batch.count,
                {name: array_of(values) for name, values in inputs.items()},
                {each.name: array_of(others[each.name]) for each in labels},
                self._kept.columns(batch, {**inputs, **others}),
            )


def format_of(data: str) -> str:
    """The format of what is named: "dataset", "parquet", "tfrecord" or "csv"."""
    is_dataset = files.exists(posixpath.join(data, manifest.FILE))
    return "dataset" if is_dataset else data_files.kind_of(data, "--data")


def _record_batches(path: str, batch_size: int) -> Iterator[RecordBatch]:
    """Batches of one TFRecord file, compressed or not."""
    try:
        compression = tfrecord.compression_of(path)
        records = tf.data.TFRecordDataset(path, compression, buffer_size=_READ_BYTES)
        first = 1
        for serialized in records.batch(batch_size).prefetch(2):
            batch = RecordBatch(path, first, serialized)
            yield batch
            first += batch.count
        # TensorFlow may take a compressed file that is cut off for a shorter one.
        if compression:
            _refuse_damage(path, compression)
    except tf.errors.DataLossError as error:
        _refuse_damage(path, compression)
        raise UserError(f"{path} cannot be read: {error.message}") from None
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from None


def _refuse_damage(path: str, compression: str) -> None:
    """Names the first record that cannot be read, if there is one."""
    for record in tfrecord.scan(path, compression):
        if record.problem:
            raise UserError(
                f"{path} record {record.number + 1} is corrupt, or the file is no TFRecord file: "
                f"it {record.problem} (byte {record.offset}); copy or prepare it again"
            )
