"""What `cloud.submit` asks of a platform."""

import abc
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from cloud.job_spec import JobSpec
from tfps.errors import RunError, UserError

# What JSON can hold, or text such as a batch script.
Request = dict[str, Any] | str
_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0)  # between tries
_T = TypeVar("_T")


class AwayError(RunError):
    """A platform does not answer, or is too busy; it may soon."""


def ask_again(ask: Callable[[], _T]) -> _T:
    """What a platform answers, which is asked for three minutes while it is away."""
    for wait in _WAITS:
        try:
            return ask()
        except AwayError:
            time.sleep(wait)
    return ask()


@dataclasses.dataclass(frozen=True)
class JobStatus:
    name: str
    title: str
    state: str
    created: str
    has_ended: bool = False
    is_success: bool = False
    message: str = ""


class Target(abc.ABC):
    """A platform with its own settings, such as a project and a region.

    `render` is pure: it needs no credentials, no network and no client package. Everything that
    reaches the platform is in the other methods, which import its client when they are called.
    """

    name: ClassVar[str]
    has_own_machines: ClassVar[bool] = False  # each task has what its role asks for, alone

    def prepare(self, spec: JobSpec) -> JobSpec:
        """Makes on this machine what the requests name, such as a package; sends nothing."""
        return spec

    @abc.abstractmethod
    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """The requests that make the job, in their order."""

    @abc.abstractmethod
    def submit(self, spec: JobSpec, wait: bool) -> int:
        """Makes the job."""

    def follow(self, job: str) -> int:
        """Shows the state and the tasks' output of a job until it ends; returns its exit code."""
        raise self._without("follow")

    def cancel(self, job: str) -> int:
        """Asks the platform to end a job; returns 0."""
        raise self._without("cancel")

    def list(self) -> int:
        """Prints the jobs that were submitted by this program; returns 0."""
        raise self._without("list")

    def describe(self, job: str) -> int:
        """Prints what the platform says of a job; returns 0."""
        raise self._without("describe")

    def _without(self, verb: str) -> UserError:
        return UserError(f"--target={self.name} has no {verb}: it keeps no jobs to speak of")


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
