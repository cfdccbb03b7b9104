"""A platform on which jobs outlive the program that submits them."""

import abc

from cloud import requests_text
from cloud.follower import Follower, Patience
from cloud.job_spec import JobSpec
from cloud.sender import JobClient
from cloud.target import Target
from tfps.errors import EXIT_OK


class RemoteTarget(Target):
    """A target with a sender, which does all that follows the rendering."""

    def __init__(self, patience: Patience):
        self._patience = patience

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
            _say("interrupted while the job was sent: look with the verb list whether it exists")
            raise
        _say(f"submitted {job}")
        if spec.chief_works:
            _say("a worker runs beside the chief (--nochief_works behind -- leaves it out)")
        if wait:
            return self._follow(sender, job)
        for verb in ("follow", "cancel"):
            _say(f"{verb}: python -m cloud.submit {verb} {job} {self.again}")
        return EXIT_OK

    def follow(self, job: str) -> int:
        """Shows the state and the tasks' output of a job until it ends."""
        return self._follow(self.sender(), job)

    def cancel(self, job: str) -> int:
        """Asks the platform to end a job."""
        self.sender().cancel(job)
        _say(f"{job}: asked to end")
        return EXIT_OK

    def list(self) -> int:
        """Prints the jobs that were submitted by this program, the newest first."""
        for status in self.sender().list():
            _say(f"{status.created}  {status.state:<10}  {status.title}  {status.name}")
        return EXIT_OK

    def describe(self, job: str) -> int:
        """Prints all that the platform says of a job, as YAML."""
        _say(requests_text.write([self.sender().describe(job)], "yaml").rstrip("\n"))
        return EXIT_OK

    def _follow(self, sender: JobClient, job: str) -> int:
        return Follower(sender, self._patience).follow(job, self.again)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the verbs are for
