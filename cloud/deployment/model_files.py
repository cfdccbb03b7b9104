"""Files of an exported model, on a disk or in `gs://`, without TensorFlow."""

import os
import pathlib
from typing import NamedTuple

from tfps.errors import UserError, reason_of
from tfps.storage.paths import is_cloud, is_local


class ModelFile(NamedTuple):
    """What a listing says of a file."""

    bytes: int
    crc32c: str = ""  # of its content; empty for one on a disk


def check_place(path: str) -> None:
    """Refuses a path that is neither local nor in `gs://`."""
    if not is_local(path) and not is_cloud(path):
        raise UserError(f"--model={path}: models are read from disks and from gs://; copy it there")


def directories(path: str) -> list[str]:
    """Names of the directories right in a directory; none of one that is missing."""
    if is_cloud(path):
        from tfps.storage import objects  # it loads the client of Google Cloud Storage

        return objects.list_directories(path)
    try:
        return sorted(each.name for each in pathlib.Path(path).iterdir() if each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(path, error) from None


def files(path: str) -> dict[str, ModelFile]:
    """All files below a directory, by path from there; none of one that is missing."""
    if is_cloud(path):
        from tfps.storage import objects

        found = objects.list_objects(path, deeply=True)
        return {name: ModelFile(each.bytes, each.crc32c) for name, each in found.items()}
    try:
        walk = os.walk(path, onerror=_raise)
        paths = [f"{parent}/{name}" for parent, _, names in walk for name in names]
        return {os.path.relpath(each, path): ModelFile(os.stat(each).st_size) for each in paths}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _unreadable(path, error) from None


def read(path: str) -> bytes:
    try:
        if is_cloud(path):
            from tfps.storage import objects

            return objects.read(path)
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _raise(error: OSError) -> None:
    raise error


def _unreadable(path: str, error: OSError) -> UserError:
    return UserError(f"--model: {path} cannot be read: {error.strerror or reason_of(error)}")
