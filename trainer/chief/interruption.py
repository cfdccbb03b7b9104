"""SIGINT and SIGTERM to the chief: the run ends at once, or where it can be saved soon."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_VARIABLE = "TFPS_STARTED_ANEW"
_FIRST_FILE = 3  # behind stdin, stdout and stderr
_kept: set[int] = set()
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_SECONDS = 0.01


def has_restarted() -> bool:
    """Whether `restart_process` has started this program."""
    return _VARIABLE in os.environ


def keep_open(file: int) -> None:
    """Leaves an open file, given by its number, to the program that is started instead."""
    _kept.add(file)


def restart_process() -> NoReturn:
    """Replaces this process's program by itself; files close but those of `keep_open`."""
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


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived."""

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


def _is_of_signal(error: BaseException | None) -> bool:
    while error and not isinstance(error, Interrupted):
        error = error.__cause__ or error.__context__
    return error is not None


class Interruption:
    """Raises `Interrupted` in the main thread at a signal; then SIGINT kills.

    A second SIGTERM means nothing new: Slurm sends several. Within `deferred`, a signal is only
    noted.
    """

    def __init__(self, grace_seconds: float):
        self._grace_seconds = grace_seconds
        self._is_deferring = False
        self._noted: int | None = None
        self._has_raised = False
        self._is_swallowed = False
        self._on_other_unraisable = sys.unraisablehook

    def install(self) -> None:
        """Takes over the signals, SIGALRM and `sys.unraisablehook`; in the main thread."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, self._on_alarm)
        self._on_other_unraisable, sys.unraisablehook = sys.unraisablehook, self._on_unraisable

    @property
    def is_requested(self) -> bool:
        """Whether a signal has arrived that is deferred."""
        return self._noted is not None

    def raise_if_requested(self) -> None:
        """Raises `Interrupted` if a signal has arrived that was deferred."""
        if self._noted is not None:
            raise Interrupted(self._noted)

    @contextlib.contextmanager
    def recognized(self) -> Iterator[None]:
        """A block whose end by a signal is always `Interrupted`; nothing in it may catch that.

        C code, such as TensorFlow's, makes a `SystemError` of it, or swallows it and then fails.
        """
        try:
            yield
        except Exception:
            if self._has_raised:
                self.raise_if_requested()
            raise

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """A block that ends soon after `is_requested`, and by itself."""
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring = False
            if self._noted is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
        self.raise_if_requested()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._noted = number
        if not self._is_deferring:
            self._has_raised = True
            raise Interrupted(number)
        self._set_limit()

    def _set_limit(self) -> None:
        # A timer of 0 would be none.
        signal.setitimer(signal.ITIMER_REAL, max(self._grace_seconds, 0.001))

    def _on_alarm(self, _: int, frame: FrameType | None) -> None:
        if self._noted is None:
            return
        if self._is_swallowed and self._is_deferring:
            self._is_swallowed = False
            self._set_limit()
        elif self._is_swallowed or self._is_deferring:
            self._is_swallowed, self._has_raised = False, True
            raise Interrupted(self._noted)

    def _on_unraisable(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Raises once more, a moment later, what C code has swallowed."""
        if not _is_of_signal(unraisable.exc_value):
            self._on_other_unraisable(unraisable)
            return
        self._is_swallowed = True
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
