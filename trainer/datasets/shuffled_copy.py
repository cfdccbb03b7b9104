"""Writes the records of TFRecord files once more, in an order that is drawn over all of them."""

import posixpath
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfps.data import bad_records, dataset_writer, manifest
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.record_order import scratch_for, whole_shuffle
from tfps.data.tfrecord import compression_of, frame, scan
from tfps.data.value_counts import RecordCounter
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.storage import files
from trainer.console import file_progress
from trainer.console.file_progress import FileProgress
from trainer.datasets import data_files
from trainer.datasets.shard_scan import CHECKED_RECORDS, refuse_absent


def files_to_copy(data: str) -> list[str]:
    """A dataset's shards, or the TFRecord files that a path, a glob or a directory names."""
    if files.exists(posixpath.join(data, manifest.FILE)):
        dataset = manifest.read(data, "--data")
        return [dataset.path_of(shard) for shard in dataset.shards]
    if files.exists(posixpath.join(data, dataset_writer.FILE)):
        raise UserError(
            f"--data={data} is where a dataset is written, or was when the program was ended; make "
            "that dataset first"
        )
    return data_files.find_records(data, "--data")


def copy_shuffled(
    experiment: Experiment,
    paths: Sequence[str],
    output: str,
    seed: int,
    name: str = "",
    overwrite: bool = False,
) -> Manifest:
    """Writes a dataset of all records of some files, with as many shards as there are files.

    Args:
        output: Directory of the dataset; none that holds one of the files.
        name: Of the dataset; the experiment's when empty.
    """
    schema = experiment.task.schema()
    if output.rstrip("/") in {posixpath.dirname(path) for path in paths}:
        raise UserError(
            f"--output={output} holds files of --data, which stay as they are; name another "
            "directory"
        )
    try:
        size = sum(tf.io.gfile.stat(path).length for path in paths)
        with (
            DatasetWriter.open(
                output, name or experiment.name, len(paths), schema, overwrite
            ) as writer,
            file_progress.shown(size) as progress,
        ):
            counter = RecordCounter(schema.all)
            records = _good_records(paths, schema.all, progress, counter)
            writer.write_all_in_turn(whole_shuffle(records, seed, scratch_for(output)))
            if not writer.records:
                raise UserError(f"--data: {paths[0]} and the other files hold no records")
            counts = counter.finish()
            refuse_absent(counts, writer.records, schema.all, paths, f"{paths[0]} and the others")
            return writer.finish(counts=counts)
    except tf.errors.OpError as error:
        raise UserError(f"--data cannot be read: {error.message}") from None


def _good_records(
    paths: Sequence[str],
    features: Sequence[Feature],
    progress: FileProgress,
    counter: RecordCounter,
) -> Iterator[bytes]:
    """All records of the files as they stand there; refuses one that a copy would hide."""
    for path in paths:
        for record in scan(path, compression_of(path)):
            problem = record.problem
            if not problem and record.number < CHECKED_RECORDS:
                problem = bad_records.find_problem(record.data or b"", features)
            if problem or record.data is None:
                raise UserError(
                    f"{path}: record {record.number} (byte {record.offset}) {problem}; what is "
                    "damaged, or other than the config's features(), is not copied: make the file "
                    "again"
                )
            counter.add(record.data)
            yield frame(record.data)
        progress.add(tf.io.gfile.stat(path).length)
