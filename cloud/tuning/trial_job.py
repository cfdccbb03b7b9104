"""The job of one trial: a `cloud.submit` that runs it, or that sends and then follows it."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from cloud.local import lifetime
from tfps.errors import UserError
from tfps.storage import objects
from tfps.storage.paths import is_cloud

_PROGRESSIVE = "progressive_"
_END_SECONDS = 120.0  # for a job on this machine to save and end
_SUBMITTED = re.compile(rb"^submitted (\S+)$", re.MULTILINE)


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
        log.parent.mkdir(parents=True, exist_ok=True)
        own = ["follow", name, *flags] if name else [*flags, "--", *arguments]
        self._process = self._start(own)

    def poll(self) -> int | None:
        """The job's exit code once it has ended."""
        code = self._process.poll()
        if code == 0 and not self._is_here and not self.name:
            found = _SUBMITTED.findall(self._log.read_bytes())
            if not found:
                return code
            self.name = found[-1].decode()
            self._process = self._start(["follow", self.name, *self._flags])
            return None
        return code

    def end(self) -> None:
        """Has it save and end, and waits for that."""
        if self.name:
            self._start(["cancel", self.name, *self._flags]).wait(_END_SECONDS)
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def leave(self) -> None:
        """Ends it where it runs on this machine; elsewhere it goes on."""
        if self._is_here:
            self.end()
        else:
            self._process.kill()
            self._process.wait()

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
