"""The records to predict, whatever they come in: a dataset, TFRecord files, or files of rows."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Self

import tensorflow as tf

from tfps.data import manifest, tfrecord
from tfps.data.row_format import RowFormat
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel
from tfps.storage import files
from trainer.datasets import data_files
from trainer.datasets.prediction_rows import PredictionRows
from trainer.datasets.record_batch import RecordBatch

FORMATS = ("auto", "dataset", "tfrecord", "csv")
_READ_BYTES = 8 << 20


class PredictionInput:
    """Records to predict, in the order of their files.

    Attributes:
        data: What was named.
        total: Number of records, where it is known beforehand.
    """

    def __init__(
        self, data: str, paths: Sequence[str], rows: PredictionRows | None, total: int | None
    ):
        """Reads nothing yet.

        Args:
            data: What was named.
            paths: The files, in order.
            rows: Reads files of rows; None for files of records.
            total: Number of records, where it is known.
        """
        self.data = data
        self.total = total
        self._paths = paths
        self._rows = rows

    @classmethod
    def find(
        cls,
        data: str,
        data_format: str,
        model: ExportedModel,
        row_format: RowFormat | None = None,
        max_bad_rows: int = 0,
    ) -> Self:
        """Finds the files and what they are.

        Args:
            data: A dataset's directory, or a file or glob of TFRecords or rows; local or `gs://`.
            data_format: One of `FORMATS`; "auto" tells by the name.
            model: Whose features every record must hold, and whose labels it may hold too.
            row_format: Layout of rows without a header; None for rows with one.
            max_bad_rows: How many bad rows may be left out.

        Raises:
            UserError: If there are no such files, or they are not of the format, or the dataset
                holds other records.
        """
        total = None
        try:
            found = _format(data) if data_format == "auto" else data_format
            if found == "dataset":
                dataset = manifest.read(data, "--data")
                model.check_schema(dataset.features, dataset.labels, f"--data={data}")
                total = dataset.records
                paths = [dataset.path_of(shard) for shard in dataset.shards if shard.records]
            else:
                paths = data_files.find(data, "--data")
        except tf.errors.OpError as error:
            raise UserError(f"--data={data} cannot be read: {error.message}") from None
        if found == "csv":
            rows = PredictionRows(model.features, model.labels, row_format, max_bad_rows)
            return cls(data, paths, rows, total)
        if row_format is not None:
            raise UserError(
                f"--data={data} holds records already, which --config does not apply to; leave "
                "--config out, or say --format=csv"
            )
        return cls(data, paths, None, total)

    @property
    def bad_rows(self) -> int:
        """How many rows were left out so far."""
        return self._rows.bad_rows if self._rows else 0

    def batches(self, batch_size: int) -> Iterator[RecordBatch]:
        """All records.

        Args:
            batch_size: Records per batch; the last one of a file may be smaller.

        Yields:
            Batches, each of one file.

        Raises:
            UserError: If a file cannot be read, or a row is bad.
        """
        for path in self._paths:
            if self._rows:
                yield from self._rows.batches(path, batch_size)
            else:
                yield from _record_batches(path, batch_size)


def _format(data: str) -> str:
    """The format of what is named: "dataset", "tfrecord" or "csv"."""
    if files.is_directory(data):
        return "dataset"
    found = {".tfrecord" in posixpath.basename(path) for path in data_files.find(data, "--data")}
    if len(found) > 1:
        raise UserError(
            f"--data={data}: only some of these files have .tfrecord in their name; name fewer, "
            f"or say which they are with --format={'|'.join(FORMATS[2:])}"
        )
    return "tfrecord" if found.pop() else "csv"


def _record_batches(path: str, batch_size: int) -> Iterator[RecordBatch]:
    """Batches of one TFRecord file, compressed or not."""
    try:
        compression = tfrecord.compression_of(path)
        records = tf.data.TFRecordDataset(path, compression, buffer_size=_READ_BYTES)
        first = 1
        for serialized in records.batch(batch_size).prefetch(2).as_numpy_iterator():
            numbers = range(first, first + len(serialized))
            yield RecordBatch(path, "record", numbers, serialized.tolist())
            first = numbers.stop
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
