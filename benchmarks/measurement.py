"""Runs one system for as long as a window takes."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks import systems
from benchmarks.datasets import ROOT
from benchmarks.meter import Meter, Reading, used
from benchmarks.systems import System

END_SECONDS = 20.0


class Failed(Exception):  # noqa: N818 - it is what the benchmark has
    """What went wrong and how to mend it, for a person."""


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


def measure(system: System, window: Window, log: pathlib.Path) -> dict[str, Any]:
    """Starts a system, measures a window of its training and ends it.

    The window begins and ends with a progress line.

    Returns:
        Figures by name, as `meter.used` gives them, and the loss at the window's end.

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
                meter = meter or Meter(systems.tasks(process.pid, system.root))
                now = meter.read()
                first = first or now
                if start is None and now.time - first.time >= window.warm_seconds:
                    start, examples_before = now, trained[0]
                elif start is not None and now.time - start.time >= window.seconds:
                    return _figures(start, now, trained[0] - examples_before, trained[1])
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
            env=os.environ | {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": "-1"},
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
