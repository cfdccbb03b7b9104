"""Files, asked in such a way that an answer that did not come is never taken for a "no".

TensorFlow's `exists`, `isdir` and `listdir` call absent whatever the operating system has an error
for: a file server that is away for a second has nothing. Here only the storage's own "there is no
such file" means absent; any other error is one.

Local paths, network mounts among them, are served by the operating system. What fails there with an
error that may pass is tried again for `PATIENCE_SECONDS`, as clients of gs:// do by themselves;
every other path goes through TensorFlow's client.
"""

import contextlib
import errno
import functools
import itertools
import logging
import os
import posixpath
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import tensorflow as tf

from tfps.errors import RunError
from tfps.storage import directories

PATIENCE_SECONDS = 120.0  # for which what fails with an error that may pass is tried again
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.1, 8.0
# Errors of storage that does not answer now, and may again.
PASSING = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EAGAIN,
        errno.EBUSY,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
    }
)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
# Of TensorFlow's clients, which have tried again themselves.
_PASSING_KINDS = (
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)
_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class StorageError(RunError):
    """Storage that gave no answer, or refused.

    Attributes:
        may_pass: Whether it may answer when it is asked again.
    """

    def __init__(self, message: str, may_pass: bool):
        super().__init__(message)
        self.may_pass = may_pass


def exists(path: str) -> bool:
    """Whether there is a file or a directory.

    Raises:
        StorageError: If the storage does not say.
    """
    return _is_directory(path) is not None


def is_directory(path: str) -> bool:
    """Whether there is a directory; on gs:// one has a file in it.

    Raises:
        StorageError: If the storage does not say.
    """
    return bool(_is_directory(path))


def size(path: str) -> int:
    """Bytes of a file.

    Raises:
        FileNotFoundError: If there is none.
        StorageError: If the storage does not say.
    """
    if _is_local(path):
        return _done("read", path, lambda: os.stat(path).st_size)
    return int(_done("read", path, lambda: tf.io.gfile.stat(path).length))


def names(directory: str, patience: float | None = None) -> list[str]:
    """Names of what lies right in a directory, in their order.

    Args:
        directory: The directory.
        patience: As of `read`.

    Raises:
        FileNotFoundError: If there is no such directory.
        StorageError: If the storage does not say.
    """
    if _is_local(directory):
        return sorted(_done("listed", directory, lambda: os.listdir(directory), patience))
    if not is_directory(directory):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
    try:
        found = _done("listed", directory, lambda: tf.io.gfile.listdir(directory))
    except FileNotFoundError:  # TensorFlow's word for any error there
        if not is_directory(directory):
            raise
        raise StorageError(f"{directory} cannot be listed; {_GO_ON}", may_pass=True) from None
    return sorted(name.rstrip("/") for name in found)


def read(path: str, patience: float | None = None) -> bytes:
    """All of a file.

    Args:
        path: The file.
        patience: Seconds for which to try again; None for `PATIENCE_SECONDS`, 0 for who asks again
            by itself.

    Raises:
        FileNotFoundError: If there is none.
        StorageError: If it cannot be read.
    """
    return _done("read", path, lambda: _content(path), patience)


def write(path: str, content: bytes) -> None:
    """Writes a file, on the disk before this returns where there is one; its name is not yet.

    Raises:
        StorageError: If it cannot be written.
    """
    _changed("written", path, lambda: _put(path, content))


def write_whole(path: str, content: bytes, temporary: str) -> None:
    """Writes a file that appears under its name once all of it, and its name, is on the disk.

    Args:
        path: The file; one that is there is replaced.
        content: All of it.
        temporary: Its name while it is written, in the same directory.

    Raises:
        StorageError: If it cannot be written.
    """

    def put() -> None:
        _put(temporary, content)
        if _is_local(path):
            os.replace(temporary, path)
            directories.sync(posixpath.dirname(path))
        else:
            tf.io.gfile.rename(temporary, path, overwrite=True)

    _changed("written", path, put)


def make_directories(path: str) -> None:
    """Makes a directory and those above it, if they are missing; their names are on the disk.

    Raises:
        StorageError: If it cannot be made.
    """
    make = directories.make if _is_local(path) else tf.io.gfile.makedirs
    _changed("made", path, lambda: make(path))


def remove(path: str) -> None:
    """Deletes a file, if it is there.

    Raises:
        StorageError: If it cannot be deleted.
    """
    work = os.remove if _is_local(path) else tf.io.gfile.remove
    with contextlib.suppress(FileNotFoundError):
        _done("deleted", path, lambda: work(path))


def remove_tree(path: str) -> None:
    """Deletes a directory with all that is in it, if it is there.

    Raises:
        StorageError: If it cannot be deleted.
    """
    work = shutil.rmtree if _is_local(path) else tf.io.gfile.rmtree
    with contextlib.suppress(FileNotFoundError):
        _done("deleted", path, lambda: work(path))


def rename(path: str, target: str) -> None:
    """Renames a file in place of one that is there, or a directory.

    Raises:
        FileNotFoundError: If there is none.
        StorageError: If it cannot be renamed, or it is not known whether it was.
    """
    tries = itertools.count()

    def move() -> None:
        is_first = next(tries) == 0
        try:
            os.replace(path, target)
        except FileNotFoundError:
            if is_first:
                raise
            os.stat(target)  # the try before may have done it, and only its answer was lost

    if _is_local(path):
        _done("renamed", path, move)
    else:
        _done("renamed", path, lambda: tf.io.gfile.rename(path, target, overwrite=True))


def sync(paths: Iterable[str]) -> None:
    """Brings files to the disk, and directories with the names in them, whoever wrote them.

    What another process of this machine wrote waits in the same memory; what another machine wrote
    and closed is with the file server by then. Object stores need nothing.

    Raises:
        FileNotFoundError: If one is not there.
        StorageError: If that fails.
    """
    for path in filter(_is_local, paths):
        _done("brought to the disk", path, functools.partial(directories.sync, path))


def sync_tree(path: str) -> None:
    """Brings a directory with all that is in it to the disk, and its own name.

    Raises:
        FileNotFoundError: If it is not there.
        StorageError: If that fails.
    """
    if not _is_local(path):
        return

    def fail(error: OSError) -> None:
        raise error

    def walked() -> list[str]:
        found = []
        for directory, _, inside in os.walk(path, onerror=fail):
            found += [*(posixpath.join(directory, file) for file in inside), directory]
        return found

    sync([*_done("listed", path, walked), posixpath.dirname(os.path.abspath(path))])


def explain(error: OSError | tf.errors.OpError, doing: str, path: str) -> StorageError:
    """An error of storage in a person's words.

    Args:
        error: As Python or TensorFlow raised it.
        doing: What could not be done, as a participle: "read".
        path: To what.
    """
    if isinstance(error, OSError):
        text, may_pass = error.strerror or str(error), error.errno in PASSING
    else:
        text = str(error.message).strip().split("\n")[0].removeprefix(f"{path}; ")
        may_pass = isinstance(error, _PASSING_KINDS)
    mend = _GO_ON
    if isinstance(error, OSError) and error.errno in _FULL:
        mend = "make room; the same command then goes on"
    elif isinstance(error, OSError) and error.errno in _CLOSED:
        mend = "make it writable for this process; the same command then goes on"
    return StorageError(f"{path} cannot be {doing} ({text}); {mend}", may_pass)


_GO_ON = "when the storage answers again, the same command goes on"


def _is_local(path: str) -> bool:
    return "://" not in path


def _is_directory(path: str) -> bool | None:
    """Whether what is there is a directory; None when there is nothing."""
    try:
        if _is_local(path):
            return stat.S_ISDIR(_done("looked at", path, lambda: os.stat(path).st_mode))
        return bool(_done("looked at", path, lambda: tf.io.gfile.stat(path).is_directory))
    except FileNotFoundError:
        return None


def _content(path: str) -> bytes:
    if _is_local(path):
        with open(path, "rb") as file:
            return file.read()
    with tf.io.gfile.GFile(path, "rb") as file:
        return bytes(file.read())


def _put(path: str, content: bytes) -> None:
    if not _is_local(path):
        with tf.io.gfile.GFile(path, "wb") as other:
            other.write(content)
        return
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _changed(doing: str, path: str, work: Callable[[], None]) -> None:
    """As `_done`, for what needs no file to be there, but a directory."""
    try:
        _done(doing, path, work)
    except FileNotFoundError as error:
        raise explain(error, doing, path) from None


def _done(
    doing: str, path: str, work: Callable[[], _Answer], patience: float | None = None
) -> _Answer:
    """What some work returns, which is tried again while it fails with an error that may pass.

    Raises:
        FileNotFoundError: If the storage says that there is no such file.
        StorageError: If it fails otherwise.
    """
    deadline = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
    delay = _FIRST_DELAY_SECONDS
    while True:
        try:
            return work()
        except (FileNotFoundError, NotADirectoryError, tf.errors.NotFoundError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        except tf.errors.OpError as error:
            raise explain(error, doing, path) from None
        except OSError as error:
            if error.errno not in PASSING or time.monotonic() + delay > deadline:
                raise explain(error, doing, path) from None
            if delay == _FIRST_DELAY_SECONDS:
                _log.warning("%s cannot be %s (%s); trying again", path, doing, error.strerror)
        time.sleep(delay)
        delay = min(2.0 * delay, _LONGEST_DELAY_SECONDS)
