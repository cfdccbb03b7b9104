"""Lets one chief at a time write to a job_dir."""

import json
import os
import socket
import time
import uuid
from typing import Any, Self

from tfps.errors import RunError
from tfps.job_dir import JobDir
from tfps.storage import files
from tfps.storage.failures import StaleReadTolerance


class SupersededError(RunError):
    """Another chief has taken the job_dir over."""


class ChiefFence:
    """`JOB_DIR/chief.json`: the chief that came last; every earlier one must end.

    The file is looked at before each write of what counts: a chief that was cut off from the
    platform which replaced it, and comes back, neither commits a checkpoint nor changes the report.
    What it had prepared to commit when it was stopped, the new chief takes away from it: see
    `commit_marker`.
    """

    def __init__(self, path: str, token: str):
        self._path = path
        self._token = token  # in the file while no other chief has come
        self._tolerance = StaleReadTolerance()

    @classmethod
    def take_over(cls, job_dir: JobDir) -> Self:
        """Takes a job_dir over, for this process, from whichever chief had it."""
        path, token = job_dir.chief, str(uuid.uuid4())
        holder = {
            "token": token,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        files.replace(path, json.dumps(holder, indent=1) + "\n", token)
        return cls(path, token)

    def check(self) -> None:
        own = {"token": self._token}
        self._compare(self._tolerance.ask(lambda: self._holder(0.0), own))

    def confirm(self) -> None:
        """As `check`, but waits for an answer: for what must not be done on an old one."""
        self._compare(self._holder())

    def _holder(self, patience: float | None = None) -> dict[str, Any]:
        """What the file says of the chief that came last; empty if it names none."""
        try:
            holder = json.loads(files.read(self._path, patience))
        except (ValueError, FileNotFoundError):
            return {}
        return holder if isinstance(holder, dict) else {}

    def _compare(self, holder: dict[str, Any]) -> None:
        if holder.get("token") == self._token:
            return
        other = "process {process} at {host}, since {since}".format_map(
            {name: holder.get(name, "unknown") for name in ("process", "host", "since")}
        )
        raise SupersededError(
            f"another chief ({other}) has taken this --job_dir over; this one ends and saves "
            "nothing: two may not train one job. If it should be the other way round, end that one "
            "and start this one again"
        )
