"""The job of one trial: a `cloud.submit` that runs it, or that sends and then follows it."""

import functools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from cloud.local import lifetime
from cloud.remote_target import say
from tfps.errors import UserError
from tfps.storage import objects
from tfps.storage.paths import is_cloud

_PROGRESSIVE = "progressive_"
_END_SECONDS = 120.0  # for a job on this machine to save and end
_SEND_SECONDS = 180.0  # for a job to be sent, before this process ends
_AGAIN_SECONDS = 30.0  # between two tries with a platform that is away
_SUBMITTED = re.compile(rb"^submitted (\S+)$", re.MULTILINE)
# What ends a `follow` whose platform does not answer; one that is over after --wait_seconds is not.
_AWAY = re.compile(rb"^error: (?!.*\(--wait_seconds\)).*; the job continues; ", re.MULTILINE)
_LAST_BYTES = 1 << 16  # of a log, in which that stands


class TrialJob:
    """A running job; the process that runs or follows it ends with this one.

    Attributes:
        name: The platform's, once it is known; of a job on this machine there is none.
    """

    def __init__(
        self,
        flags: Sequence[str],
        arguments: Sequence[str],
        log: pathlib.Path,
        is_here: bool,
        name: str = "",
    ):
        """Starts it, or follows the job of a name.

        Args:
            flags: Those of `cloud.submit`.
            arguments: The tasks'.
            log: File for what it writes.
            is_here: Whether it runs on this machine, where it ends with this process.
            name: Of a job that was submitted before.
        """
        self.name = name
        self._flags = flags
        self._log = log
        self._is_here = is_here
        self._is_sending = not name and not is_here
        self._cancelled_at = -math.inf  # when the platform did not take it last
        self._begin(["follow", name, *flags] if name else [*flags, "--", *arguments])

    def poll(self) -> int | None:
        """The job's exit code once it has ended."""
        code = self._process.poll()
        if code is None or self._is_here:
            return code
        is_sent = self._is_sending and self._find_name() and code == 0
        if is_sent:
            self._is_sending = False
        if not is_sent and not (self.name and code and self._was_away()):
            return code
        if is_sent or time.monotonic() - self._began_at >= _AGAIN_SECONDS:
            self._begin(["follow", self.name, *self._flags])
        return None

    def end(self) -> bool:
        """Has it save and end, and waits for that; false while its platform does not take it."""
        self._await_name()
        if self.name and not self._cancel():
            return False
        self._process.terminate()
        _wait_or_kill(self._process)
        return True

    def leave(self) -> None:
        """Ends it where it runs on this machine; elsewhere it continues, and its name is known."""
        if self._is_here:
            self.end()
        else:
            self._await_name()
            self._process.kill()
            self._process.wait()

    def _cancel(self) -> bool:
        if time.monotonic() - self._cancelled_at < _AGAIN_SECONDS:
            return False
        if _wait_or_kill(self._start(["cancel", self.name, *self._flags])) == 0:
            return True
        self._cancelled_at = time.monotonic()
        say(f"{self.name} cannot be ended, which is tried again; see {self._log}")
        return False

    def _await_name(self) -> None:
        """Waits for the end of a submission, of which nobody knew otherwise."""
        if self._is_here or self.name or self._process.poll():
            return
        ends = time.monotonic() + _SEND_SECONDS
        say(f"waiting until a job is submitted; see {self._log}")
        while time.monotonic() < ends:
            is_over = self._process.poll() is not None
            if self._find_name() or is_over:
                return
            time.sleep(0.1)

    def _find_name(self) -> bool:
        found = _SUBMITTED.findall(self._log.read_bytes()[self._begin_byte :])
        self.name = found[-1].decode() if found else ""
        return bool(found)

    def _was_away(self) -> bool:
        """Whether a `follow` has ended since the platform did not answer: the job continues."""
        with self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin_byte, size - _LAST_BYTES))
            return bool(_AWAY.search(file.read()))

    def _begin(self, arguments: Sequence[str]) -> None:
        """Starts what runs, sends or follows the job."""
        self._began_at = time.monotonic()
        self._begin_byte = self._log.stat().st_size if self._log.exists() else 0
        self._process = self._start(arguments)

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "cloud.submit", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=functools.partial(lifetime.end_with, os.getpid()),
            )


def _wait_or_kill(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process, which gets some time for it."""
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def values(job_dir: str, metric: str) -> list[tuple[int, float]]:
    """Step and value of a metric, as far as a job has reported them, in their order.

    Of an evaluation the step is its epoch. A metric such as `progressive_auc`, of records before
    they were trained, has its newest value for each tenth of an epoch that is trained: trials are
    compared at equal steps.

    Raises:
        UserError: There are evaluations without that metric.
    """
    path = f"{job_dir}/report.json"
    try:
        text = objects.read(path) if is_cloud(path) else pathlib.Path(path).read_bytes()
        report = json.loads(text)
    except (FileNotFoundError, ValueError):  # it has not begun
        return []
    if metric.startswith(_PROGRESSIVE):
        return _progressive(report, metric, path)
    rows: list[dict[str, Any]] = report.get("evaluations") or []
    for row in rows:
        if metric not in row:
            names = ", ".join(sorted(set(row) - {"epoch", "steps"})) or "none"
            raise UserError(f"the evaluations in {path} have no metric {metric}, but {names}")
    return [(int(row["epoch"]), float(row[metric])) for row in rows]


def _progressive(report: dict[str, Any], metric: str, path: str) -> list[tuple[int, float]]:
    found, examples = report.get("progressive") or {}, report["examples"]
    if not found:
        return []
    value = found.get(metric.removeprefix(_PROGRESSIVE))
    if value is None:
        names = ", ".join(_PROGRESSIVE + name for name in sorted(found))
        raise UserError(f"{path} has no {metric}, but {names}")
    tenths = 10 * examples["trained"] // max(1, examples["per_epoch"])
    return [(step, float(value)) for step in range(1, tenths + 1)]
