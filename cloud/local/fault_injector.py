"""Injects faults into a running local cluster and notes what comes of them."""

import contextlib
import functools
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from cloud.local import chief_worker_process
from cloud.local.events import Events
from cloud.local.faults import Fault
from cloud.local.process import Process

_PROGRESS = re.compile(rb"epoch (\d+)/\d+: ([\d,]+) of [\d,]+ records")


class FaultInjector:
    """Sends the signals at their times, and reads from the chief's lines when training went on.

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
        """The cluster starts now."""
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
    # Of all tasks only the worker beside the chief is not the launcher's own.
    found = chief_worker_process.find(chief.pid, fault.task) if chief else None
    return None if found is None else functools.partial(_send, found)


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended since
        os.kill(process, number)
