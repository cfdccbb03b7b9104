"""Runs one system for as long as a window takes."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import psutil

from benchmarks import systems
from benchmarks.datasets import ROOT
from benchmarks.failure import Failed
from benchmarks.meter import Meter, Reading, used
from benchmarks.systems import System

END_SECONDS = 20.0


@dataclasses.dataclass(frozen=True)
class Window:
    """When to measure.

    Attributes:
        warm_seconds: From the first progress line on, before the window.
        seconds: Its least length.
        limit_seconds: For the whole run, start included.
    """

    warm_seconds: float
    seconds: float
    limit_seconds: float


class Watch(Protocol):
    """What looks at a system besides, from a window's begin on."""

    def begin(self, tasks: Mapping[str, int]) -> None:
        """Called when the window begins.

        Args:
            tasks: Process ids by task.
        """

    def end(self, process: int, tasks: Mapping[str, int]) -> dict[str, Any]:
        """Called when it is over, while the system still trains; returns more figures by name.

        Args:
            process: The process that was started.
            tasks: Process ids by task.
        """
        ...


def measure(
    system: System, window: Window, log: pathlib.Path, watch: Watch | None = None
) -> dict[str, Any]:
    """Starts a system, measures a window of its training and ends it.

    The window begins and ends with a progress line.

    Args:
        system: What to start.
        window: When to measure.
        log: Where its output goes.
        watch: What looks at it besides.

    Returns:
        Figures by name, as `meter.used` gives them, the loss at the window's end, and the watch's.

    Raises:
        Failed: If the system ends or the limit passes before the window is over.
    """
    first = start = None
    meter: Meter | None = None
    try:
        with started(system, log, window.limit_seconds) as process, log.open("a") as kept:
            for line in process.stdout:
                kept.write(line)
                trained = systems.progress(line)
                if not trained or not trained[0]:
                    continue
                if meter is None:
                    tasks = systems.tasks(process.pid, system.root)
                    meter = Meter(tasks)
                now = meter.read()
                first = first or now
                if start is None and now.time - first.time >= window.warm_seconds:
                    start, examples_before = now, trained[0]
                    if watch:
                        watch.begin(tasks)
                elif start is not None and now.time - start.time >= window.seconds:
                    found = _figures(start, now, trained[0] - examples_before, trained[1])
                    return {**found, **(watch.end(process.pid, tasks) if watch else {})}
    except (psutil.NoSuchProcess, FileNotFoundError) as error:
        raise Failed(f"a task ended ({error}):\n{tail(log)}") from None
    raise Failed(f"no window of {window.seconds:g} s was seen:\n{tail(log)}")


def _figures(start: Reading, end: Reading, examples: int, loss: float) -> dict[str, Any]:
    if examples <= 0:
        raise Failed(f"no example was trained in {end.time - start.time:.0f} s")
    return {**used(start, end, examples), "loss": loss}


@contextlib.contextmanager
def started(
    system: System, log: pathlib.Path, limit_seconds: float
) -> Iterator[subprocess.Popen[str]]:
    """A system whose lines are read; all its processes end on leaving, or when the time is up."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            system.command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **system.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # tfps writes its progress of local mode there.
            stderr=subprocess.STDOUT if system.root == "chief-0" else errors,
            text=True,
            start_new_session=True,
        )
    limit = threading.Timer(limit_seconds, process.terminate)
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process, all it started, and whatever is left of its process group."""
    children = []
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=END_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for child in psutil.wait_procs(children, timeout=END_SECONDS)[1]:
        child.kill()


def tail(path: pathlib.Path) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-20:])
