"""What the running processes were started with, be they forks or not."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import psutil

VARIABLE = "TFPS_TESTS_STARTED"  # names the directory in which forks say what they are


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


def processes_with(argument: str) -> Iterator[psutil.Process]:
    """The running processes that have an argument."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            found = _noted(process.pid)
            if argument in (process.cmdline() if found is None else found["argv"]):
                yield process


def _noted(pid: int) -> dict | None:
    if VARIABLE not in os.environ:
        return None
    try:
        found = json.loads(pathlib.Path(os.environ[VARIABLE], str(pid)).read_text())
    except FileNotFoundError:
        return None
    # An id may have been another process's before.
    return found if found["began"] == _began(pid) else None


def _began(pid: int) -> int:
    # Ticks since boot: psutil's create_time adds the time of boot, which moves with the clock.
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return int(stat.rpartition(")")[2].split()[19])
