"""Puts the files of a dataset in place of those of another in the same directory.

The manifest is the switch: until it is written again the dataset is the old one, and whole. So new
files have names that no file has. Before the first of them is made, a list of old and new files is
written: whatever of it the manifest does not name is no part of a dataset, and is deleted when the
new manifest is there, when writing fails, or before the next dataset is written, if this process
dies.
"""

import contextlib
import itertools
import json
import posixpath
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from tfps.data import manifest
from tfps.errors import UserError
from tfps.storage import atomic_file
from tfps.storage.paths import is_file_name

FILE = "replacing.json"


def free_prefix(directory: str, name: str, files: Callable[[str], Iterable[str]]) -> str:
    """The name, or the first of `NAME.2`, `NAME.3`, … whose files are not in the directory yet."""
    taken = set(tf.io.gfile.listdir(directory))
    prefixes = (name if number == 1 else f"{name}.{number}" for number in itertools.count(1))
    return next(prefix for prefix in prefixes if taken.isdisjoint(files(prefix)))


def begin(directory: str, files: Sequence[str]) -> None:
    """Lists files before they are made, or are no part of the dataset any more."""
    listed = sorted({*_listed(directory), *files})
    text = json.dumps({"files": listed}, indent=1) + "\n"
    atomic_file.write(posixpath.join(directory, FILE), text, "partial")


def settle(directory: str) -> None:
    """Deletes those of the listed files that are no part of the dataset, then the list."""
    listed = _listed(directory)
    stated = manifest.named_files(directory) if listed else ()
    for name in (*sorted(set(listed) - set(stated)), *([FILE] if listed else [])):
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(posixpath.join(directory, name))


def _listed(directory: str) -> list[str]:
    """Names of the listed files; none without a list."""
    path = posixpath.join(directory, FILE)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = json.loads(file.read())
    except tf.errors.NotFoundError:
        return []
    except ValueError:
        content = None
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, list) or not files or not all(map(is_file_name, files)):
        raise UserError(
            f"{path} is no list of files in its directory, as it is kept while a dataset is "
            "written; delete it"
        )
    return files
