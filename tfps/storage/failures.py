"""Failures of storage: whether they may pass, what people read, how long to retry.

The operating system serves local paths, network mounts included. Errors there that may pass are
retried for `PATIENCE_SECONDS`, as clients of gs:// do by themselves.
"""

import errno
import logging
import os
import time
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from tfps.errors import RunError, UserError

PATIENCE_SECONDS = 120.0  # for which what fails with an error that may pass is tried again
GO_ON = "when the storage answers again, rerun the same command to resume"
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
HOLD_SECONDS = 300.0


class StorageError(RunError):
    """Storage that gave no answer, or refused; `may_pass` if it may answer later."""

    def __init__(self, message: str, may_pass: bool):
        super().__init__(message)
        self.may_pass = may_pass


def explain(error: OSError | tf.errors.OpError, doing: str, path: str) -> StorageError:
    """An error of storage in a person's words; `doing` is a participle such as "read"."""
    if isinstance(error, OSError):
        text, may_pass = error.strerror or str(error), error.errno in PASSING
    else:
        text = str(error.message).strip().split("\n")[0].removeprefix(f"{path}; ")
        may_pass = isinstance(error, _PASSING_KINDS)
    hint = GO_ON
    if isinstance(error, OSError) and error.errno in _FULL:
        hint = "make room, then rerun the same command to resume"
    elif isinstance(error, OSError) and error.errno in _CLOSED:
        hint = "make it writable for this process, then rerun the same command to resume"
    return StorageError(f"{path} cannot be {doing} ({text}); {hint}", may_pass)


def of_named(
    error: StorageError | tf.errors.OpError, what: str, doing: str = "read"
) -> StorageError | UserError:
    """Why files that a user named cannot be used: it is theirs, or storage may answer later."""
    if isinstance(error, StorageError):
        found, text = error, str(error)
    else:
        found, text = explain(error, doing, what), error.message
    return found if found.may_pass else UserError(f"{what} cannot be {doing}: {text}")


def attempt(
    doing: str, path: str, work: Callable[[], _Answer], patience: float | None = None
) -> _Answer:
    """Works on a file, and retries errors that may pass for `patience` seconds."""
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


def attempt_change(doing: str, path: str, work: Callable[[], None]) -> None:
    """As `attempt`, for work that needs no file, but a directory."""
    try:
        attempt(doing, path, work)
    except FileNotFoundError as error:
        raise explain(error, doing, path) from None


class StaleReadTolerance:
    """Repeats its last answer while storage gives none, for up to `HOLD_SECONDS`."""

    def __init__(self) -> None:
        self._silent_since: float | None = None

    def ask(self, question: Callable[[], _Answer], last: _Answer) -> _Answer:
        """The answer to a question; the last one while the storage gives none."""
        try:
            answer = question()
        except StorageError as error:
            if not error.may_pass:
                raise
            if self._silent_since is None:
                self._silent_since = time.monotonic()
                _log.warning("%s; continuing for up to %.0f s without it", error, HOLD_SECONDS)
            silent = time.monotonic() - self._silent_since
            if silent > HOLD_SECONDS:
                raise StorageError(f"for {silent:.0f} s {error}", may_pass=True) from None
            return last
        self._silent_since = None
        return answer
