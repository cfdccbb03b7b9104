"""Files on local disks and gs://, where a missing answer never counts as "absent".

TensorFlow's `exists`, `isdir` and `listdir` report absent for any error of the operating system: a
file server that is away for a second has nothing. Here only the storage's own "there is no such
file" means absent; any other error is one. The operating system serves local paths, TensorFlow's
client all others.
"""

import contextlib
import errno
import functools
import itertools
import os
import posixpath
import shutil
import socket
import stat
from collections.abc import Callable, Iterable

import google_crc32c
import tensorflow as tf

from tfps.storage import local_files
from tfps.storage.failures import GO_ON, StorageError, attempt, attempt_change
from tfps.storage.paths import is_local

_CHUNK_BYTES = 1 << 22
_OBJECT_BYTES = 1 << 20  # from which on another object is begun: each flush uploads all of one


def replace(path: str, content: str | bytes, suffix: str = "tmp") -> None:
    """Writes a file in one piece, in place of an old one; a power cut leaves either.

    Each of several tasks that may write it at the same time needs its own suffix.
    """
    whole = content.encode() if isinstance(content, str) else content
    temporary = f"{path}.{suffix}"

    def put() -> None:
        _put(temporary, whole)
        if is_local(path):
            os.replace(temporary, path)
            local_files.sync(posixpath.dirname(path))
        else:
            tf.io.gfile.rename(temporary, path, overwrite=True)

    attempt_change("written", path, put)


def checksum_of(content: bytes) -> str:
    return _hexadecimal(google_crc32c.Checksum(content))


def checksum_of_file(path: str) -> str:
    crc = google_crc32c.Checksum()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc.update(chunk)
    return _hexadecimal(crc)


def _hexadecimal(crc: google_crc32c.Checksum) -> str:
    return str(crc.hexdigest().decode("ascii"))


def exists(path: str) -> bool:
    return _is_directory(path) is not None


def is_directory(path: str) -> bool:
    """Whether there is a directory; on gs:// one has a file in it."""
    return bool(_is_directory(path))


def size(path: str) -> int:
    if is_local(path):
        return attempt("read", path, lambda: os.stat(path).st_size)
    return int(attempt("read", path, lambda: tf.io.gfile.stat(path).length))


def names(directory: str, patience: float | None = None) -> list[str]:
    """Names of what is directly in a directory, sorted."""
    if is_local(directory):
        return sorted(attempt("listed", directory, lambda: os.listdir(directory), patience))
    if not is_directory(directory):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
    try:
        found = attempt("listed", directory, lambda: tf.io.gfile.listdir(directory))
    except FileNotFoundError:  # TensorFlow's word for any error there
        if not is_directory(directory):
            raise
        raise StorageError(f"{directory} cannot be listed; {GO_ON}", may_pass=True) from None
    return sorted(name.rstrip("/") for name in found)


def read(path: str, patience: float | None = None) -> bytes:
    """All of a file; `patience` is that of `attempt`, 0 for callers that ask again themselves."""
    return attempt("read", path, lambda: _content(path), patience)


def write(path: str, content: bytes) -> None:
    """Writes a file, to the disk where there is one; its name may not be there yet."""
    attempt_change("written", path, lambda: _put(path, content))


def _put(path: str, content: bytes) -> None:
    if is_local(path):
        local_files.write(path, content)
    else:
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)


def make_directories(path: str) -> None:
    """Makes a directory and missing parents; their names are on the disk."""
    make = local_files.make_directories if is_local(path) else tf.io.gfile.makedirs
    attempt_change("made", path, lambda: make(path))


def remove(path: str) -> None:
    """Deletes a file, if it is there."""
    work = os.remove if is_local(path) else tf.io.gfile.remove
    with contextlib.suppress(FileNotFoundError):
        attempt("deleted", path, lambda: work(path))


def remove_tree(path: str) -> None:
    """Deletes a directory with its content, if it is there."""
    work = shutil.rmtree if is_local(path) else tf.io.gfile.rmtree
    with contextlib.suppress(FileNotFoundError):
        attempt("deleted", path, lambda: work(path))


def rename(path: str, target: str) -> None:
    """Renames a file in place of an old one, or a directory."""
    tries = itertools.count()

    def move() -> None:
        is_first = next(tries) == 0
        try:
            os.replace(path, target)
        except FileNotFoundError:
            if is_first:
                raise
            os.stat(target)  # the try before may have done it, and only its answer was lost

    if is_local(path):
        attempt("renamed", path, move)
    else:
        attempt("renamed", path, lambda: tf.io.gfile.rename(path, target, overwrite=True))


def sync(paths: Iterable[str]) -> None:
    """Brings files to the disk, and directories with their names, whoever wrote them.

    Content that another process of this machine wrote is in the same memory; what another machine
    wrote and closed is with the file server by then. Object stores need nothing.
    """
    for path in filter(is_local, paths):
        attempt("brought to the disk", path, functools.partial(local_files.sync, path))


def sync_tree(path: str) -> None:
    """Brings a directory with its content to the disk, and its own name."""
    if not is_local(path):
        return
    found = attempt("listed", path, lambda: local_files.tree(path))
    sync([*found, posixpath.dirname(os.path.abspath(path))])


def _is_directory(path: str) -> bool | None:
    """Whether there is a directory; None when there is nothing."""
    try:
        if is_local(path):
            return stat.S_ISDIR(attempt("looked at", path, lambda: os.stat(path).st_mode))
        return bool(attempt("looked at", path, lambda: tf.io.gfile.stat(path).is_directory))
    except FileNotFoundError:
        return None


def _content(path: str) -> bytes:
    if is_local(path):
        with open(path, "rb") as file:
            return file.read()
    with tf.io.gfile.GFile(path, "rb") as file:
        return bytes(file.read())


def writer_of(began: float) -> str:
    """A prefix of this process's file names; sorted, they are in the order of `began`."""
    return f"{began:017.6f}.{socket.gethostname()}.{os.getpid()}"


class GrowingFile:
    """A file of a directory that grows; on gs:// a sequence of objects.

    An object cannot be appended to: it is written again with the new content, until it is large.
    Content that could not be written waits for the next flush. `name` gives the name of each
    numbered file, from 0; no other writer's are the same.
    """

    def __init__(self, directory: str, name: Callable[[int], str], head: bytes = b""):
        self._directory = directory
        self._name = name
        self._head = head
        self._number = 0
        self._is_begun = False
        self._object = b""  # what has been written of an object
        self._new: list[bytes] = []

    def append(self, content: bytes) -> None:
        self._new.append(content)

    def flush(self) -> None:
        """Writes what was added since the last flush."""
        if not self._new:
            return
        if not self._is_begun:
            make_directories(self._directory)
            self._new.insert(0, self._head)
            self._is_begun = True
        path = posixpath.join(self._directory, self._name(self._number))
        content = b"".join(self._new)
        if is_local(path):
            attempt_change("written", path, lambda: _append(path, content))
        else:
            write(path, self._object + content)
            self._object += content
        self._new.clear()
        if len(self._object) >= _OBJECT_BYTES:
            self._number, self._is_begun, self._object = self._number + 1, False, b""


def _append(path: str, content: bytes) -> None:
    """Appends all of it, or nothing."""
    with open(path, "ab", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            os.ftruncate(file.fileno(), end)
            raise
