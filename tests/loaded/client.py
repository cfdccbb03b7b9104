"""Starts programs as forks of a loaded process."""

import functools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from cloud.local import forking
from cloud.local.fork import Order
from tests.loaded import environment, started
from tests.project import ROOT

_making = threading.Lock()  # threads that start the first programs at once share one
_at_first: dict[str, str] = {}  # the environment before any test


class Fork:
    """A running fork: what tests use of a `subprocess.Popen`.

    Attributes:
        pid: Process id, which is its session's too.
        stdout: What it writes to stdout and stderr, where that is one stream.
        returncode: As that of a `subprocess.Popen`.
        cpu_seconds: What it and its children used, once it has ended.
    """

    def __init__(self, pid: int, told: socket.socket, stdout: IO[bytes] | None = None) -> None:
        self.pid, self._told, self.stdout = pid, told, stdout
        self.returncode: int | None = None
        self.cpu_seconds = 0.0
        self._ended = threading.Event()
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def poll(self) -> int | None:
        """As `subprocess.Popen.poll` does."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """As `subprocess.Popen.wait` does."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """As `subprocess.Popen.terminate` does."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """As `subprocess.Popen.kill` does, with all of its session."""
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)

    def _wait(self) -> None:
        with self._told:
            self.returncode, self.cpu_seconds = forking.end_of(self._told)
        self._ended.set()


def start(argv: Sequence[str], environ: Mapping[str, str]) -> Fork | None:
    """Starts a program in the project's root directory, in a session of its own.

    Args:
        argv: The interpreter, `-m`, a module and its arguments.
        environ: Its whole environment.

    Returns:
        None where only a process that loads everything itself would see the same.
    """
    if not _loaded().is_same(environ):
        return None
    reading, writing = os.pipe()
    try:
        fork = _loaded().order(argv, environ, writing, writing)
    finally:
        os.close(writing)
    fork.stdout = os.fdopen(reading, "rb")
    return fork


def run(
    module: str, *arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 110.0
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, as `subprocess.run` does, in a fork where that is the same.

    Args:
        module: What `python -m` would run.
        arguments: Its arguments.
        environ: Its whole environment; that of this process if None.
        timeout: Seconds it may take.

    Raises:
        subprocess.TimeoutExpired: It took longer, and is gone.
    """
    argv = [sys.executable, "-m", module, *arguments]
    full = dict(os.environ if environ is None else environ) | {"PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        if not _loaded().is_same(full):
            code = subprocess.run(
                argv, cwd=ROOT, env=full, stdout=output, stderr=errors, timeout=timeout, check=False
            ).returncode
        else:
            fork = _loaded().order(argv, full, output.fileno(), errors.fileno())
            try:
                code = fork.wait(timeout)
            finally:
                fork.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(argv, code, output.read(), errors.read())


def begin_here() -> None:
    """Takes note of the environment in which most programs are started: this process's, now.

    What a test sets while it starts the first of them is then no reason to load everything again
    for all that come after it.
    """
    _at_first.update(os.environ)


class Loaded:
    """A loaded process, which ends with this one.

    Attributes:
        directory: In which its forks say what they are.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Starts it.

        Args:
            environ: Variables beside those that this process had before any test, with which it
                loads.
        """
        self._removed = tempfile.TemporaryDirectory(prefix="tfps-started-")
        self.directory = self._removed.name
        started.look_in(self.directory)
        self._lock, self._has_loaded = threading.Lock(), False
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environ = {
            **(_at_first or os.environ),
            "PYTHONUNBUFFERED": "1",
            **(environ or {}),
        }
        self._errors = pathlib.Path(self.directory, "errors")
        with other, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.loaded.server"],
                cwd=ROOT,
                env=self._environ,
                stdin=other,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def is_same(self, environ: Mapping[str, str]) -> bool:
        """Whether a program with this whole environment would see the same in a fork."""
        return environment.is_same(environ, self._environ)

    def start(self, module: str, arguments: Sequence[str], output: int) -> Fork:
        """Starts a program in the environment in which everything was loaded.

        Args:
            module: What `python -m` would run.
            arguments: Its arguments.
            output: Open file for its stdout and stderr.
        """
        argv = [sys.executable, "-m", module, *arguments]
        return self.order(argv, self._environ, output, output)

    def order(
        self, argv: Sequence[str], environ: Mapping[str, str], output: int, errors: int
    ) -> Fork:
        """Starts a program.

        Args:
            argv: The interpreter, `-m`, a module and its arguments.
            environ: Its whole environment.
            output: Open file for its stdout.
            errors: Open file for its stderr.
        """
        order = Order(list(argv), {**environ, started.VARIABLE: self.directory})
        try:
            with self._lock:
                if not self._has_loaded:
                    self._has_loaded = self._socket.recv(64) == forking.LOADED
                pid, handle, told = forking.order(self._socket, order, output, errors)
        except ConnectionError:
            raise AssertionError(
                f"the loaded process forks no more: {self._errors.read_text()}"
            ) from None
        os.close(handle)
        return Fork(pid, told)

    def end(self) -> None:
        """Ends it, and its forks with it."""
        self._socket.close()
        self._process.wait(30)
        self._removed.cleanup()


@functools.cache
def _only() -> Loaded:
    return Loaded()


def _loaded() -> Loaded:
    with _making:
        return _only()
