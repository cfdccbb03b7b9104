"""What reaches a platform where jobs outlive the program that submits them."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from cloud.job_status import JobStatus
from cloud.target import Request


class JobClient(Protocol):
    """Sends what a target has rendered, and asks about jobs.

    Every method raises a `UserError` for what the platform refuses, and a `RunError` if it cannot
    be reached within a limit.
    """

    def send(self, requests: Sequence[Request]) -> str:
        """Makes one job, even if requests are repeated; returns the platform's name of it."""

    def status(self, job: str) -> JobStatus:
        """What the platform says of a job."""

    def new_lines(self, job: str) -> Iterable[tuple[str, str]]:
        """Task and text of the lines that the job's tasks have written since the last call."""

    def cancel(self, job: str) -> None:
        """Asks for the end of a job."""

    def list(self) -> Sequence[JobStatus]:
        """The jobs that were submitted by this program, the newest first."""

    def describe(self, job: str) -> Request:
        """All that the platform says of a job."""
