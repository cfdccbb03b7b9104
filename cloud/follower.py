"""Follows a job on a platform to its end."""

import dataclasses
import os
import sys
import time

from cloud.job_status import JobStatus
from cloud.local.task_output import TaskOutput
from cloud.sender import JobClient
from tfps.errors import EXIT_OK, RunError, UserError
from tfps.live_view.status import parse

_NAME = "submit"  # whose lines the follower's own are


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long, and how often, to look.

    Attributes:
        last_looks: Further looks for lines after the end, since they come in late.
    """

    limit_seconds: float
    poll_seconds: float = 10.0
    last_looks: int = 2


class Follower:
    """Prints the state of a job and what its tasks write, until it ends."""

    def __init__(self, sender: JobClient, patience: Patience):
        is_terminal = sys.stdout.isatty()
        has_colour = is_terminal and "NO_COLOR" not in os.environ
        self._sender = sender
        self._patience = patience
        self._relay = TaskOutput(sys.stdout.fileno(), is_terminal, has_colour)
        self._has_lines = True  # whether the lines can be read

    def follow(self, job: str, again: str) -> int:
        """Follows a job.

        Returns:
            0 once the job has ended well.
        """
        try:
            status = self._watch(job)
        except KeyboardInterrupt:
            self._say(f"{job} goes on; {_mends(job, again)}")
            raise
        except RunError as error:
            raise RunError(f"{error}; the job goes on; {_mends(job, again)}") from None
        finally:
            self._relay.hide()
        if not status.is_success:
            reason = status.message or f"see `python -m cloud.submit describe {job} {again}`"
            raise RunError(f"{job}: {status.state}: {reason}")
        return EXIT_OK

    def _watch(self, job: str) -> JobStatus:
        """Shows states and lines until the job has ended; returns its last state."""
        deadline = time.monotonic() + self._patience.limit_seconds
        state = ""
        while True:
            status = self._sender.status(job)
            if status.state != state:
                state = status.state
                self._say(f"{status.title}: {state}")
            self._show_lines(job)
            if status.has_ended:
                break
            if time.monotonic() >= deadline:
                limit = f"{self._patience.limit_seconds:g} s (--wait_seconds)"
                raise RunError(f"{job} is {state} after {limit}")
            if self._relay.is_broken:
                raise RunError("the output is closed")
            time.sleep(self._patience.poll_seconds)
        for _ in range(self._patience.last_looks if self._has_lines else 0):
            time.sleep(self._patience.poll_seconds)
            self._show_lines(job)
        return status

    def _show_lines(self, job: str) -> None:
        if not self._has_lines:
            return
        try:
            for task, text in self._sender.new_lines(job):
                if status := parse(text):
                    self._relay.show(task, status)
                    continue
                for line in text.splitlines() or [""]:
                    self._relay.line(task, line)
        except UserError as error:
            self._has_lines = False
            self._say(f"the tasks' output cannot be read, only the job's state: {error}")

    def _say(self, text: str) -> None:
        self._relay.line(_NAME, text)


def _mends(job: str, again: str) -> str:
    program = "python -m cloud.submit"
    return f"follow it with `{program} follow {job} {again}`, end it with `{program} cancel …`"
