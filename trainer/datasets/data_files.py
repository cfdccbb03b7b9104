"""Finds the files that a flag names."""

import posixpath

import tensorflow as tf

from tfps.data import parquet
from tfps.errors import UserError
from tfps.storage import files


def find(data: str, flag: str) -> list[str]:
    """The file, or the files of a glob in the order of their names.

    Args:
        data: Path of a file or a glob, local or `gs://`.
        flag: What named it, for messages; for example `--data`.

    Raises:
        UserError: If there is no such file, or one of them is a directory.
    """
    if files.is_directory(data):
        raise UserError(f"{flag}={data} is a directory; name files")
    if files.exists(data):
        return [data]
    found = sorted(tf.io.gfile.glob(data)) if any(sign in data for sign in "*?[") else []
    if not found:
        raise UserError(f"{flag}={data}: no such file")
    directories = [path for path in found if files.is_directory(path)]
    if directories:
        raise UserError(f"{flag}={data}: {directories[0]} is a directory; name files only")
    return found


def find_records(data: str, flag: str) -> list[str]:
    """The TFRecord files that a file's path, a glob or a directory names.

    Args:
        data: In a directory, the files with `.tfrecord` in their names are meant.
        flag: What named it, for messages.

    Raises:
        UserError: If there are none.
    """
    if not files.is_directory(data):
        return find(data, flag)
    names = [name for name in files.names(data) if ".tfrecord" in name]
    paths = [posixpath.join(data, name) for name in names]
    found = [path for path in paths if not files.is_directory(path)]
    if not found:
        raise UserError(
            f"{flag}={data} holds no file with .tfrecord in its name; name the files with a glob, "
            f"such as {flag}='{posixpath.join(data, 'part-*')}'"
        )
    return found


def find_parquet(data: str, flag: str) -> list[str]:
    """The Parquet files that a file's path, a glob or a directory names.

    Args:
        data: In a directory, the files are meant whose names end in `.parquet`.
        flag: What named it, for messages.

    Raises:
        UserError: If there are none, or one is no Parquet file.
    """
    found = parquet_in(data) if files.is_directory(data) else find(data, flag)
    if not found:
        raise UserError(f"{flag}={data} holds no file whose name ends in .parquet; name the files")
    for path in found:
        if not parquet.is_parquet(path):
            raise UserError(f"{path} is no Parquet file: it does not begin with PAR1")
    return found


def parquet_in(directory: str) -> list[str]:
    """The files in a directory whose names end in `.parquet`, hidden ones left out."""
    names = [name for name in files.names(directory) if name.endswith(".parquet")]
    paths = [posixpath.join(directory, name) for name in names if name[0] not in "_."]
    return [path for path in paths if not files.is_directory(path)]
