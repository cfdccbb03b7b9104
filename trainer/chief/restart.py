"""Lets this process start again: the same program, with nothing of what TensorFlow holds."""

import contextlib
import os
import signal
import sys
from typing import NoReturn

_VARIABLE = "TFPS_STARTED_ANEW"
_FIRST_FILE = 3  # behind stdin, stdout and stderr
_kept: set[int] = set()


def has_restarted() -> bool:
    """Whether `restart_process` has started this program."""
    return _VARIABLE in os.environ


def keep_open(file: int) -> None:
    """Leaves an open file, given by its number, to the program that is started instead."""
    _kept.add(file)


def restart_process() -> NoReturn:
    """Replaces the program of this process by itself, with the same arguments.

    The process stays the same to whoever started it. Its connections and its servers end, and its
    files are closed but for those of `keep_open`.
    """
    os.environ[_VARIABLE] = "1"
    signal.setitimer(signal.ITIMER_REAL, 0)  # it would outlive the program
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(sys.stderr.fileno(), _FIRST_FILE - 1)  # `terminal.redirect_noise` has moved it
    # TensorFlow's sockets would be kept, and its server's port with them.
    for file in map(int, os.listdir("/proc/self/fd")):
        if file >= _FIRST_FILE:
            with contextlib.suppress(OSError):  # the listing's own, which is closed by now
                os.set_inheritable(file, file in _kept)
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - our own arguments
