"""Runs the trainer's programs as a user does, and watches them from outside."""

import contextlib
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import psutil

from tests.loaded import client, started
from tests.project import ROOT

T = TypeVar("T")
# Lines of TensorFlow's native code, in either of the forms that it has.
NOISE = r"^(WARNING: All log messages|[IWEF]\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] ).*"
PATIENCE = 110  # seconds that any one event may take on a busy machine
_CLUSTER_VARIABLES = ("TF_CONFIG", "CLUSTER_SPEC")


class Program:
    """A started `python -m MODULE …` and everything it has printed.

    A context manager: what it started is ended when the block is left. The local launcher's tasks,
    each in a session of its own, are killed by the kernel as soon as the launcher is.

    Attributes:
        pid: Process id.
        lines: What was read so far of its stdout and stderr, which are one stream.
    """

    def __init__(
        self,
        *argv: str,
        environ: Mapping[str, str] | None = None,
        module: str = "trainer.task",
        loads: bool = False,
    ) -> None:
        """Starts it, as a fork of a process that has loaded TensorFlow where that is the same.

        Args:
            argv: Its arguments.
            environ: Variables beside those of this process.
            module: What it runs.
            loads: Starts a process that loads everything itself: its memory is its own.
        """
        command = [sys.executable, "-m", module, *argv]
        kept = {name: x for name, x in os.environ.items() if name not in _CLUSTER_VARIABLES}
        full = kept | {"PYTHONUNBUFFERED": "1"} | dict(environ or {})
        fork = None if loads else client.start(command, full)
        self._process = fork or subprocess.Popen(
            command,
            cwd=ROOT,
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._unread: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All lines read so far."""
        return "\n".join(self.lines)

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self._process.poll() is not None

    @property
    def is_fork(self) -> bool:
        """Whether it is one of a process that has loaded TensorFlow."""
        return isinstance(self._process, client.Fork)

    @property
    def cpu_seconds(self) -> float:
        """What it and its tasks used, once it has ended; of a fork."""
        assert isinstance(self._process, client.Fork)
        return self._process.cpu_seconds

    @property
    def errors(self) -> list[str]:
        """The lines that tell of an error, and any line of a traceback."""
        return [line for line in self.lines if re.search(r"(^|\] )error: |Traceback", line)]

    def see(self, pattern: str, seen: int = 0, patience: float = PATIENCE) -> re.Match[str]:
        """Waits until some line, the first `seen` left out, has the pattern; returns its match."""
        deadline = time.monotonic() + patience
        while True:
            for line in self.lines[seen:]:
                if match := re.search(pattern, line):
                    return match
            seen = len(self.lines)
            if not self._read_line(pattern, deadline):
                raise AssertionError(f"ended without {pattern!r}:\n{self.text}")

    def finish(self, patience: float = PATIENCE) -> int:
        """Waits for the end; returns the exit code, minus a signal's number if it died by one.

        `patience` is how long it may write nothing: a run is slow beside others, and says so.
        """
        while self._read_line("its end", time.monotonic() + patience):
            pass
        return self._process.wait(PATIENCE)

    def tasks(self) -> dict[str, psutil.Process]:
        """The launcher's tasks that run now, by name ("chief 0", "worker 1").

        The worker next to the chief is one of them.
        """
        found: dict[str, psutil.Process] = {}
        children = psutil.Process(self.pid).children()
        # What a task has started has its environment, but for that worker; and comes after it.
        for child in [*children, *(each for x in children for each in _descendants(x))]:
            with contextlib.suppress(psutil.NoSuchProcess, KeyError):
                if task := started.task_of(child):
                    found.setdefault(task, child)
        return found

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(PATIENCE)
        if self._process.stdout:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._unread.put(line.decode(errors="backslashreplace").removesuffix("\n"))
        self._unread.put(None)

    def _read_line(self, awaited: str, deadline: float) -> bool:
        """Takes the next line; False at the end of the output."""
        try:
            line = self._unread.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(
                f"after {PATIENCE} s still no {awaited!r} in:\n{self.text}"
            ) from None
        if line is not None:
            self.lines.append(line)
        return line is not None


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def trainer_flags(train: object, job_dir: object, *more: str, eval_data: object = "") -> list[str]:
    """Flags of `trainer.task` for the smoke config."""
    flags = ["--config=configs/smoke.py", f"--data.train={train}", f"--job_dir={job_dir}"]
    return [*flags, *([f"--data.eval={eval_data}"] if eval_data else []), *more]


def local_cluster(
    workers: int,
    ps: int,
    flags: Sequence[str],
    loads: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Program:
    """Starts a cluster with the local launcher; `loads` and `environ` are those of `Program`."""
    own = [f"--workers={workers}", f"--ps={ps}", "--"]
    return Program(*own, *flags, module="cloud.local", loads=loads, environ=environ)


def read_report(job_dir: pathlib.Path) -> dict[str, Any]:
    """The report of a job."""
    report: dict[str, Any] = json.loads((job_dir / "report.json").read_text())
    return report


def checkpoints(job_dir: pathlib.Path) -> list[dict[str, Any]]:
    """Commit markers of a job's checkpoints, oldest first."""
    return [
        json.loads(path.read_text()) for path in sorted(job_dir.glob("checkpoints/*/commit.json"))
    ]


def wait_for_checkpoint(job_dir: pathlib.Path) -> dict[str, Any]:
    """Waits for a job's first checkpoint; returns its commit marker."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := checkpoints(job_dir):
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no checkpoint in {job_dir} after {PATIENCE} s")


def wait_until(look: Callable[[], T], patience: float = PATIENCE) -> T:
    """What `look` sees once it is true."""
    ends = time.monotonic() + patience
    while not (seen := look()):
        assert time.monotonic() < ends
        time.sleep(0.1)
    return seen


def assert_gone(processes: Sequence[psutil.Process]) -> None:
    """Asserts that processes end, or have ended."""
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    assert not alive
