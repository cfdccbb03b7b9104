"""Faults to inject into a local cluster, as a person writes them."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import random
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from cloud.local.process import Events, Process
from tfps.cluster.spec import TF_CONFIG
from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

_SESSION = re.compile(r".*\) \S \d+ \d+ (\d+) ", re.DOTALL)  # in /proc/PID/stat
_KINDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
_FAULT = re.compile(
    r"(?P<kind>\w+):(?P<job>\w+)(:(?P<index>\d+|\*))?@(?P<at>[\d.]+)s(-(?P<until>[\d.]+)s)?"
    r"(\+(?P<hold>[\d.]+)s)?"
)
_PROGRESS = re.compile(rb"((?:epoch|dataset) \d+).*: ([\d,]+) of [\d,]+ records")


def find(session: int, worker: TaskName) -> int | None:
    """Its process id; None where it does not run."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, KeyError):  # it has ended, or is no task
            match = _SESSION.match((process / "stat").read_text())
            if match and int(match[1]) == session and _chief_worker_task(process) == worker:
                return int(process.name)
    return None


def _chief_worker_task(process: pathlib.Path) -> TaskName | None:
    """Which task a process was started as."""
    start = f"{TF_CONFIG}=".encode()
    for variable in (process / "environ").read_bytes().split(b"\0"):
        if variable.startswith(start):
            task = json.loads(variable.removeprefix(start))["task"]
            return TaskName(task["type"], task["index"])
    return None


@dataclasses.dataclass(frozen=True)
class Fault:
    """A signal to a task at a time."""

    kind: str
    task: TaskName
    at: float  # seconds after the start of the cluster
    hold: float | None = None  # of a stop, seconds until SIGCONT; None leaves it stopped

    @property
    def signal(self) -> signal.Signals:
        return _KINDS[self.kind]

    def __str__(self) -> str:
        hold = f" for {self.hold:g} s" if self.hold is not None else ""
        return f"{self.kind} {self.task.label}{hold}"


def parse(text: str, tasks: Mapping[str, int], seed: int) -> list[Fault]:
    """Reads a list of faults such as `kill:worker:*@30s,stop:ps:0@60s+10s,term:chief@90s-120s`.

    Each has kind, job, index (`*` draws one; a chief needs none), time after the start (or two,
    between which one is drawn), and for a stop how long it lasts.
    """
    draw = random.Random(seed)  # noqa: S311 - no secrets
    return sorted(
        (_fault(part.strip(), tasks, draw) for part in text.split(",")),
        key=lambda fault: fault.at,
    )


def _fault(text: str, tasks: Mapping[str, int], draw: random.Random) -> Fault:
    match = _FAULT.fullmatch(text)
    if not match:
        raise UserError(
            f"--chaos: {text!r} is no fault; write KIND:JOB[:INDEX]@SECONDSs, such as "
            "kill:worker:*@30s, stop:ps:0@60s+10s or term:chief@90s-120s"
        )
    kind, job, index = match["kind"], match["job"], match["index"]
    if kind not in _KINDS:
        raise UserError(f"--chaos: {text!r}: kind {kind!r} is unknown; use {', '.join(_KINDS)}")
    if match["hold"] and kind != "stop":
        raise UserError(f"--chaos: {text!r}: only a stop lasts; leave out +{match['hold']}s")
    at = _time(text, match["at"])
    if match["until"]:
        at = draw.uniform(at, _time(text, match["until"]))
    hold = _time(text, match["hold"]) if match["hold"] else None
    return Fault(kind, _task(text, job, index, tasks, draw), at, hold)


def _task(
    text: str, job: str, index: str | None, tasks: Mapping[str, int], draw: random.Random
) -> TaskName:
    count = tasks.get(job, 0)
    if not count:
        jobs = ", ".join(name for name, number in tasks.items() if number)
        raise UserError(f"--chaos: {text!r}: the cluster has no {job}; its jobs are {jobs}")
    if job == "chief":
        return TaskName(job, 0)
    number = draw.randrange(count) if index in (None, "*") else int(index or 0)
    if number >= count:
        raise UserError(f"--chaos: {text!r}: the cluster has {count} {job}; indices start at 0")
    return TaskName(job, number)


def _time(text: str, seconds: str) -> float:
    try:
        return float(seconds)
    except ValueError:
        raise UserError(f"--chaos: {text!r}: {seconds!r} is no number of seconds") from None


class FaultInjector:
    """Sends the signals at their times, and reads from the chief's lines when training continued.

    Two lines of progress that differ, of one chief, say that a batch was trained between them.
    """

    def __init__(self, faults: Sequence[Fault], say: Callable[[str], None]):
        self._faults = faults
        self._say = say
        self._began = time.monotonic()
        self._injected: list[tuple[Fault, float]] = []
        self._trained: dict[int, float] = {}  # by index in `_injected`, when the next batch was
        self._last: tuple[bytes, bytes] | None = None
        self._rest = b""

    def begin(self, events: Events, running: Mapping[str, Process]) -> None:
        self._began = time.monotonic()
        for fault in self._faults:
            events.after(fault.at, functools.partial(self._inject, fault, events, running))

    def read(self, data: bytes) -> None:
        """Takes output of the chief, cut anywhere."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not (match := _PROGRESS.search(line)):
                continue
            seen = (match[1], match[2])
            if self._last not in (None, seen):
                for index in range(len(self._injected)):
                    self._trained.setdefault(index, self._seconds())
            self._last = seen

    def report(self) -> None:
        """Says of each fault when it was and how long it took until the next trained batch."""
        for index, (fault, at) in enumerate(self._injected):
            trained = self._trained.get(index)
            after = "none was" if trained is None else f"{trained - at:.1f} s later"
            self._say(f"chaos: {fault} at {at:.1f} s; next batch trained: {after}")

    def _inject(self, fault: Fault, events: Events, running: Mapping[str, Process]) -> None:
        send = _sender(fault, running)
        if send is None:
            self._say(f"chaos: {fault}: it does not run at {self._seconds():.1f} s")
            return
        self._say(f"chaos: {fault}")
        self._injected.append((fault, self._seconds()))
        if fault.task.job == "chief":  # its next lines may begin anywhere
            self._last = None
        send(fault.signal)
        if fault.hold is not None:
            events.after(fault.hold, lambda: send(signal.SIGCONT))

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def _sender(
    fault: Fault, running: Mapping[str, Process]
) -> Callable[[signal.Signals], None] | None:
    """What sends signals to the task of a fault; None where it does not run."""
    process, chief = running.get(fault.task.label), running.get("chief")
    if process is not None:
        return process.send
    # Of all tasks only the worker next to the chief is not the launcher's own.
    found = find(chief.pid, fault.task) if chief else None
    return None if found is None else functools.partial(_send, found)


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended since
        os.kill(process, number)
