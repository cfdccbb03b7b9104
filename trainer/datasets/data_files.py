"""Finds the files that a flag names."""

import posixpath

import tensorflow as tf

from tfps.data import dataset_writer, manifest, parquet, tfrecord
from tfps.errors import UserError
from tfps.storage import files

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
    index = manifest.index_file("")  # which tfps wrote next to TFRecord files
    found = [x for x in paths if not files.is_directory(x) and not x.endswith(index)]
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


def _holds_records(path: str) -> bool | None:
    """Whether a file begins with a record, compressed or not; None where it holds nothing."""
    first = next(tfrecord.scan(path, tfrecord.compression_of(path), read_bytes=_HEAD_BYTES), None)
    return None if first is None else first.data is not None
