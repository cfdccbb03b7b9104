"""The versions of an exported model, as TensorFlow Serving looks for them: numbered directories.

A version is there once it is whole: on a disk its directory is renamed, in a bucket
`saved_model.pb`, without which no server takes a directory for a model, is written last.
"""

import posixpath

from tfps.export.names import GRAPH_FILE
from tfps.storage import files

_REFUSED = "refused"


def whole_versions(base: str) -> list[int]:
    """Numbers of the versions in a directory that are whole, in their order."""
    return [
        number for number in _numbers(base) if files.exists(f"{path_of(base, number)}/{GRAPH_FILE}")
    ]


def newest_version(base: str) -> str | None:
    """Path of the newest version that is whole; None if there is none."""
    for number in reversed(_numbers(base)):
        path = path_of(base, number)
        if files.exists(f"{path}/{GRAPH_FILE}"):
            return path
    return None


def next_version(base: str) -> str:
    """Path of the next version, behind all that there are, whole or not."""
    return path_of(base, max(_numbers(base), default=0) + 1)


def path_of(base: str, number: int) -> str:
    """Path of a version."""
    return posixpath.join(base, str(number))


def refused_path(base: str) -> str:
    """Where a model goes that is not to be the newest version; no server looks there."""
    return posixpath.join(base, _REFUSED)


def delete_old(base: str, keep: int) -> None:
    """Deletes all but the newest versions, the oldest first; and what is not whole before them."""
    stay = whole_versions(base)[-keep:]
    for number in _numbers(base):
        if stay and number < stay[0]:
            path = path_of(base, number)
            files.remove(f"{path}/{GRAPH_FILE}")  # first: no server takes what is left for a model
            files.remove_tree(path)


def _numbers(base: str) -> list[int]:
    try:
        names = files.names(base)
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())
