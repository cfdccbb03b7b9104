"""The process of the worker beside the chief, which the chief has started, not the launcher."""

import contextlib
import json
import pathlib
import re

from tfps.cluster.spec import TF_CONFIG
from tfps.job_dir.task_name import TaskName

_SESSION = re.compile(r".*\) \S \d+ \d+ (\d+) ", re.DOTALL)  # in /proc/PID/stat


def find(session: int, worker: TaskName) -> int | None:
    """Its process id; None where it does not run."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, KeyError):  # it has ended, or is no task
            match = _SESSION.match((process / "stat").read_text())
            if match and int(match[1]) == session and _task(process) == worker:
                return int(process.name)
    return None


def _task(process: pathlib.Path) -> TaskName | None:
    """Which task a process was started as."""
    start = f"{TF_CONFIG}=".encode()
    for variable in (process / "environ").read_bytes().split(b"\0"):
        if variable.startswith(start):
            task = json.loads(variable.removeprefix(start))["task"]
            return TaskName(task["type"], task["index"])
    return None
