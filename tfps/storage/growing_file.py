"""Files that a run appends to as it goes on, also where nothing can be appended to."""

import os
import posixpath
import socket
from collections.abc import Callable

from tfps.storage import files
from tfps.storage.failures import attempt_change
from tfps.storage.paths import is_local

_OBJECT_BYTES = 1 << 20  # from which on another object is begun: each flush uploads all of one


def writer_of(began: float) -> str:
    """What tells the files of this process from others'; names that begin so sort by who began.

    Args:
        began: When it began to write, seconds since 1970.
    """
    return f"{began:017.6f}.{socket.gethostname()}.{os.getpid()}"


class GrowingFile:
    """What is appended lies in one file of a directory, or on gs:// in some, one after the other.

    An object cannot be appended to: it is written again with what is new, until it is large. What
    could not be written waits for the next flush.
    """

    def __init__(self, directory: str, name: Callable[[int], str], head: bytes = b""):
        """Writes nothing yet.

        Args:
            name: Given a number, from 0, the name of that file; no other writer's are the same.
        """
        self._directory = directory
        self._name = name
        self._head = head
        self._number = 0
        self._is_begun = False
        self._object = b""  # what has been written of an object
        self._new: list[bytes] = []

    def append(self, content: bytes) -> None:
        """Adds something, which the next flush writes."""
        self._new.append(content)

    def flush(self) -> None:
        """Writes what was added since the last flush, for whoever reads the file meanwhile."""
        if not self._new:
            return
        if not self._is_begun:
            files.make_directories(self._directory)
            self._new.insert(0, self._head)
            self._is_begun = True
        path = posixpath.join(self._directory, self._name(self._number))
        content = b"".join(self._new)
        if is_local(path):
            attempt_change("written", path, lambda: _append(path, content))
        else:
            files.write(path, self._object + content)
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
