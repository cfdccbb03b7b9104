"""The records to predict, whatever they come in: a dataset, TFRecord files, or files of rows."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Self

import tensorflow as tf

from tfps.data import manifest, tfrecord
from tfps.data.row_format import RowFormat
from tfps.data.schema import Schema, refuse_missing
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel
from tfps.storage import files
from trainer.datasets import data_files
from trainer.datasets.kept_features import KeptFeatures
from trainer.datasets.prediction_rows import PredictionRows
from trainer.datasets.record_batch import RecordBatch
from trainer.datasets.record_columns import RecordColumns, array_of
from trainer.datasets.row_layout import RowLayouts

FORMATS = ("auto", "dataset", *data_files.KINDS)
_READ_BYTES = 8 << 20


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
