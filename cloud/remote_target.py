"""A platform on which jobs outlive the program that submits them."""

import abc
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from cloud.job_spec import JobSpec
from cloud.local.task_output import TaskOutput
from cloud.target import JobClient, JobStatus, Request, Target
from tfps.errors import EXIT_OK, RunError, UserError
from tfps.job_dir.task_name import TaskName
from tfps.live_view import status as live_status
from tfps.live_view.status import parse

FORMATS = ("yaml", "json")
LABELS = "logging.googleapis.com/labels"
_NAME = "submit"  # whose lines the follower's own are


def write(requests: Sequence[Request], form: str) -> str:
    """Requests as yaml or json text; several JSON documents follow each other."""
    texts = [each if isinstance(each, str) else _encode(each, form) for each in requests]
    return ("---\n" if form == "yaml" else "").join(texts)


def _encode(request: object, form: str) -> str:
    if form == "json":
        return json.dumps(request, indent=2) + "\n"
    return yaml.dump(request, Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes a file within a request as the lines that it has."""


def _represent(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent)


def said(fields: Mapping[str, Any]) -> str:
    """How far the run is, as `tfps.live_view.status.parse` reads it, else the message."""
    found = live_status.from_json(fields)
    return found.to_text() if found else str(fields.get("message", ""))


def teller(task: str, labels: Mapping[str, Any]) -> str:
    """Whose line it is: a chief's container has those of the worker next to it, too."""
    role, index = labels.get("role"), str(labels.get("index"))
    if task == "chief" and role == "worker" and index.isdecimal():
        return TaskName(role, int(index)).label
    return task


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the verbs are for


def warn_of_paths_here(spec: JobSpec, is_shared: Callable[[str], bool]) -> None:
    """Says which paths in a job's arguments its tasks find only if their image has them."""
    config = spec.argument("config")
    found = ["config"] if os.path.isabs(config) and not is_shared(config) else []
    for name in ("data.train", "data.eval"):
        paths = filter(None, spec.argument(name).split(","))
        if any("://" not in path and not is_shared(path) for path in paths):
            found.append(name)
    if found:
        said = " and ".join(f"--{name}={spec.argument(name)}" for name in found)
        say(
            f"WARNING: tasks see no file of this machine, so {said} must be in their image; put "
            "data into a bucket (gs://…), and a config into the image"
        )


@dataclasses.dataclass(frozen=True)
class PollOptions:
    limit_seconds: float
    poll_seconds: float = 10.0
    last_looks: int = 2  # further ones after the end, since lines come in late


class Follower:
    """Prints the state of a job and what its tasks write, until it ends."""

    def __init__(self, sender: JobClient, polling: PollOptions):
        self._sender = sender
        self._polling = polling
        self._relay = TaskOutput.on_stdout()
        self._has_lines = True  # whether the lines can be read

    def follow(self, job: str, again: str) -> int:
        """Follows a job to its end; returns 0 if that is a good one."""
        try:
            status = self._watch(job)
        except KeyboardInterrupt:
            self._say(f"{job} continues; {_hints(job, again)}")
            raise
        except RunError as error:
            raise RunError(f"{error}; the job continues; {_hints(job, again)}") from None
        finally:
            self._relay.hide()
        if not status.is_success:
            reason = status.message or f"see `python -m cloud.submit describe {job} {again}`"
            raise RunError(f"{job}: {status.state}: {reason}")
        return EXIT_OK

    def _watch(self, job: str) -> JobStatus:
        """Shows states and lines until the job has ended; returns its last state."""
        deadline = time.monotonic() + self._polling.limit_seconds
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
                limit = f"{self._polling.limit_seconds:g} s (--wait_seconds)"
                raise RunError(f"{job} is {state} after {limit}")
            if self._relay.is_broken:
                raise RunError("the output is closed")
            time.sleep(self._polling.poll_seconds)
        for _ in range(self._polling.last_looks if self._has_lines else 0):
            time.sleep(self._polling.poll_seconds)
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


def _hints(job: str, again: str) -> str:
    program = "python -m cloud.submit"
    return f"follow it with `{program} follow {job} {again}`, end it with `{program} cancel …`"


@dataclasses.dataclass
class RemoteTarget(Target):
    """A target with a sender, which does all that follows the rendering."""

    polling: PollOptions

    @property
    @abc.abstractmethod
    def again(self) -> str:
        """Flags with which this program reaches the same place again."""

    @abc.abstractmethod
    def sender(self) -> JobClient:
        """What reaches the platform."""

    def stage(self, spec: JobSpec) -> None:
        """Checks and uploads what the job needs on the platform; called before it is sent."""

    def submit(self, spec: JobSpec, wait: bool) -> int:
        """Sends the job, once; says how to follow it, or follows it."""
        rendered = self.render(spec)
        sender = self.sender()
        self.stage(spec)
        try:
            job = sender.send(rendered)
        except KeyboardInterrupt:
            say("interrupted while the job was sent: look with the verb list whether it exists")
            raise
        say(f"submitted {job}")
        if spec.chief_works:
            say("a worker runs next to the chief (--nochief_works behind -- leaves it out)")
        if wait:
            return self._follow(sender, job)
        for verb in ("follow", "cancel"):
            say(f"{verb}: python -m cloud.submit {verb} {job} {self.again}")
        return EXIT_OK

    def follow(self, job: str) -> int:
        return self._follow(self.sender(), job)

    def cancel(self, job: str) -> int:
        self.sender().cancel(job)
        say(f"{job}: asked to end")
        return EXIT_OK

    def list(self) -> int:
        for status in self.sender().list():
            say(f"{status.created}  {status.state:<10}  {status.title}  {status.name}")
        return EXIT_OK

    def describe(self, job: str) -> int:
        say(write([self.sender().describe(job)], "yaml").rstrip("\n"))
        return EXIT_OK

    def _follow(self, sender: JobClient, job: str) -> int:
        return Follower(sender, self.polling).follow(job, self.again)
