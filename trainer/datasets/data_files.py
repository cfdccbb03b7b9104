"""Finds the files that a flag names."""

import posixpath
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfps.data import bad_records, dataset_writer, manifest, parquet, tfrecord
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.examples import RecordCounter
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.record_order import scratch_for, whole_shuffle
from tfps.data.tfrecord import compression_of, frame, scan
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.storage import files
from trainer.console import file_progress
from trainer.console.file_progress import FileProgress
from trainer.datasets.shard_scan import CHECKED_RECORDS, refuse_absent

KINDS = TFRECORD, ROWS, PARQUET = ("tfrecord", "csv", "parquet")
_TFRECORD = ".tfrecord"
_OWN = (manifest.FILE, dataset_writer.FILE)
_HEAD_BYTES = 64 << 10


def find(data: str, flag: str) -> list[str]:
    """The files that a file's path, a glob or a directory names, sorted by name.

    Hidden files, whose names begin with `.` or `_`, are left out of a glob, unless that names them
    so, and of a directory, as are directories in it: Spark, Beam and Hadoop write such files.
    """
    if files.is_directory(data):
        return _in_directory(data, flag)
    if files.exists(data):
        return [data]
    found = sorted(tf.io.gfile.glob(data)) if any(sign in data for sign in "*?[") else []
    if not _is_hidden(data):
        found = [path for path in found if not _is_hidden(path)]
    if not found:
        raise UserError(f"{flag}={data}: no such file")
    directories = [path for path in found if files.is_directory(path)]
    if directories:
        raise UserError(f"{flag}={data}: {directories[0]} is a directory; name files only")
    return found


def find_records(data: str, flag: str) -> list[str]:
    """The TFRecord files that a path or a glob names; of a directory all, if none is called so."""
    found = find(data, flag)
    if not files.is_directory(data):
        return found
    if named := [path for path in found if _is_called(path, _TFRECORD)]:
        return named
    if others := [path for path in found if _holds_records(path) is False]:
        raise UserError(
            f"{flag}={data}: {others[0]} is no TFRecord file; name the files that are with a glob, "
            f"such as {flag}='{posixpath.join(data, 'part-*')}', or make records of rows with "
            "trainer.prepare"
        )
    return found


def find_parquet(data: str, flag: str) -> list[str]:
    """The Parquet files that a path or a glob names; of a directory all, if none is called so."""
    found = find(data, flag)
    if files.is_directory(data):
        found = [path for path in found if path.endswith(".parquet")] or found
    for path in found:
        if not parquet.is_parquet(path):
            raise UserError(f"{path} is no Parquet file: it does not begin with PAR1")
    return found


def kind_of(data: str, flag: str) -> str:
    """What some files hold, by their names and the content of the first: one of `KINDS`."""
    found = find(data, flag)
    if files.is_directory(data) and any(path.endswith(".parquet") for path in found):
        return PARQUET
    called = [path for path in found if _is_called(path, _TFRECORD)]
    if called and (len(called) == len(found) or files.is_directory(data)):
        return TFRECORD
    if called:
        raise UserError(
            f"{flag}={data}: only some of these files have .tfrecord in their name; name fewer, or "
            f"say which they are with --format={'|'.join(KINDS)}"
        )
    for path in found:
        if parquet.is_parquet(path):
            return PARQUET
        if (holds_records := _holds_records(path)) is not None:
            return TFRECORD if holds_records else ROWS
    return ROWS


def _in_directory(directory: str, flag: str) -> list[str]:
    """The files right in a directory that are its data."""
    names = [name for name in files.names(directory) if not _is_hidden(name)]
    paths = [posixpath.join(directory, name) for name in names if name not in _OWN]
    found = [path for path in paths if not files.is_directory(path) and not _is_index(path)]
    if found:
        return found
    if paths:
        first = posixpath.basename(paths[0])
        raise UserError(
            f"{flag}={directory} holds directories, such as {first}, but no files; name the files "
            f"with a glob, such as {flag}='{posixpath.join(directory, '*', '*')}'"
        )
    raise UserError(f"{flag}={directory} holds no files")


def _is_hidden(path: str) -> bool:
    return posixpath.basename(path).startswith((".", "_"))


def _is_called(path: str, part: str) -> bool:
    return part in posixpath.basename(path)


def _is_index(path: str) -> bool:
    """Whether it is the index that tfps wrote next to TFRecord files."""
    return path.endswith(manifest.index_file(""))


def _holds_records(path: str) -> bool | None:
    """Whether a file begins with a record, compressed or not; None where it holds nothing."""
    first = next(tfrecord.scan(path, tfrecord.compression_of(path), read_bytes=_HEAD_BYTES), None)
    return None if first is None else first.data is not None


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
    return find_records(data, "--data")


def copy_shuffled(
    experiment: Experiment,
    paths: Sequence[str],
    output: str,
    seed: int,
    name: str = "",
    overwrite: bool = False,
) -> Manifest:
    """Writes a dataset of all records of some files, with as many shards as files."""
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
