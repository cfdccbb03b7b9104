"""Runs a program in a fork of this process."""

import atexit
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tests.loaded import environment, started

_FIRST_FILE = 3  # behind stdin, stdout and stderr
_LAUNCHER = "cloud.local"
_loaded: dict[str, str] = {}
_Popen = subprocess.Popen


def begin_here() -> None:
    """Takes note of the environment in which everything was loaded: this process's."""
    _loaded.update(os.environ)


def run(argv: Sequence[str], environ: Mapping[str, str], output: int, errors: int) -> NoReturn:
    """Becomes the process of a command, to be called in the fork, and ends it.

    Args:
        argv: The interpreter, `-m`, a module and its arguments.
        environ: Its whole environment.
        output: Open file for its stdout.
        errors: Open file for its stderr; every other is closed.
    """
    code = 1
    try:
        _take(os.open(os.devnull, os.O_RDONLY), output, errors)
        os.environ.clear()
        os.environ.update(environment.DEFAULTS | dict(environ))
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        np.random.seed()  # Python's own does so by itself
        sys.argv[:] = argv[2:]
        sys.orig_argv[:] = argv
        started.note(argv, environ)
        # The launcher starts its tasks from its one thread; others must not fork once they run.
        subprocess.Popen = _start if argv[2] == _LAUNCHER else _Popen
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leave:
        code = _code_of(leave)
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _take(*files: int) -> None:
    """Makes three open files stdin, stdout and stderr."""
    kept = [os.dup(file) for file in files]  # one of them may be another's number
    for number, file in enumerate(kept):
        os.dup2(file, number)
    os.closerange(_FIRST_FILE, os.sysconf("SC_OPEN_MAX"))


def _code_of(leave: SystemExit) -> int:
    if leave.code is None or isinstance(leave.code, int):
        return leave.code or 0
    sys.stderr.write(f"{leave.code}\n")
    return 1


def _end(code: int) -> NoReturn:
    """Ends the process as the interpreter does, without going back through who forked it."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


def _start(argv: Sequence[str], **options: Any) -> Any:
    """Starts what `cloud.local.process` starts as a fork where it can be one."""
    is_task = options.get("preexec_fn") and list(argv[:2]) == [sys.executable, "-m"]
    if is_task and environment.is_same(options["env"], _loaded):
        return _Fork(argv, **options)
    return _Popen(argv, **options)


class _Fork:
    """What `cloud.local.process` uses of a `subprocess.Popen`."""

    def __init__(self, argv: Sequence[str], **options: Any) -> None:
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._begin(argv, writing, **options)
        os.close(writing)
        self.stdout = os.fdopen(reading, "rb", 0)

    def wait(self) -> int:
        """As `subprocess.Popen.wait` does."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def _begin(self, argv: Sequence[str], writing: int, **options: Any) -> NoReturn:
        try:
            os.setsid()
            options["preexec_fn"]()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        run(argv, options["env"], writing, writing)
