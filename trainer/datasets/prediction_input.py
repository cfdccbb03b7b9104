"""The records to predict, whatever they come in: a dataset, TFRecord files, or files of rows."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfps.data import examples, manifest, tfrecord
from tfps.data.feature import Feature
from tfps.data.row_format import RowFormat
from tfps.data.schema import Schema, refuse_missing
from tfps.errors import UserError, listed
from tfps.export.loaded_model import ExportedModel
from trainer.datasets import data_files
from trainer.datasets.prediction_rows import PredictionRows
from trainer.datasets.record_columns import ListedColumn, RecordBatch, RecordColumns, array_of

_READ_BYTES = 8 << 20


class KeptFeatures:
    """Features to copy, which the first record describes; `others` are not the model's."""

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
                others.append(Feature(name, examples.DTYPES[kind], (None,)))
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


@dataclasses.dataclass(frozen=True)
class PredictionInput:
    """Records to predict, in the order of their files."""

    data: str
    paths: Sequence[str]
    reader: "PredictionRows | _PredictionRecords"
    total: int | None = None

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
        """Finds the files and what they are; without a row format columns name features."""
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
            rows = PredictionRows(
                model.features,
                model.labels,
                row_format,
                keep,
                max_bad_rows,
                () if row_format else (*model.converted, *model.converted_labels),
            )
            return cls(data, paths, rows, total)
        if row_format is not None:
            raise UserError(
                f"--data={data} holds records already, which --config does not apply to; leave "
                "--config out, or say --format=csv"
            )
        return cls(data, paths, _PredictionRecords(model, keep), total)

    @property
    def bad_rows(self) -> int:
        return self.reader.bad_rows

    @property
    def has_rows(self) -> bool:
        """Whether rows are read, not records."""
        return isinstance(self.reader, PredictionRows)

    def columns(self, most: int) -> Iterator[RecordColumns]:
        """All records in order, at most `most` of one file at once; of text a block of bytes."""
        is_labelled: bool | None = None
        for path in self.paths:
            for found in self.reader.columns(path, most):
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
    """Reads TFRecord files; a bad record ends the run."""

    bad_rows = 0

    def __init__(self, model: ExportedModel, keep: Sequence[str]):
        self._model = model
        self._kept = KeptFeatures(keep, (*model.features, *model.labels))

    def columns(self, path: str, most: int) -> Iterator[RecordColumns]:
        """The records of one file in order, `most` at once."""
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
    is_dataset = manifest.is_in(data)
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
