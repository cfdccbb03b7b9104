"""What the running processes were started with, be they forks or not."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import psutil

from benchmarks import systems

VARIABLE = "TFPS_TESTS_STARTED"  # tells a fork in which directory it says what it is
_directories: list[str] = []  # of all loaded processes that this one has started


def look_in(directory: str) -> None:
    """Finds the forks that say there what they are."""
    _directories.append(directory)


def note(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Notes what this process is; the loaded process does so for each of its forks."""
    path = pathlib.Path(environ[VARIABLE], str(os.getpid()))
    text = json.dumps({"argv": list(argv), "environ": dict(environ), "began": _began(os.getpid())})
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def environ_of(process: psutil.Process) -> dict[str, str]:
    """The environment with which a process began."""
    found = _noted(process.pid)
    return dict(process.environ() if found is None else found["environ"])


def task_of(process: psutil.Process) -> str | None:
    """Which task a process is ("worker 0"); that of what started it, if it is none itself."""
    found = systems.task_of(process, environ_of(process))
    return found.replace("-", " ") if found else None


def processes_with(argument: str) -> Iterator[psutil.Process]:
    """The running processes that have an argument."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            found = _noted(process.pid)
            if argument in (process.cmdline() if found is None else found["argv"]):
                yield process


def _noted(pid: int) -> dict | None:
    for directory in _directories:
        with contextlib.suppress(FileNotFoundError):
            found = json.loads(pathlib.Path(directory, str(pid)).read_text())
            if found["began"] == _began(pid):  # an id may have been another process's before
                return found
    return None


def _began(pid: int) -> float:
    return psutil.Process(pid).create_time()
