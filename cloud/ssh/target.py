"""A job on machines that ssh reaches: `--target=ssh`."""

import dataclasses
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

from absl import flags

from cloud import job_spec
from cloud.job_spec import JobSpec, Role
from cloud.node.shares import Shares
from cloud.remote_target import PollOptions, RemoteTarget, say
from cloud.ssh import checks, hosts
from cloud.ssh.checks import Needs
from cloud.ssh.hosts import Host
from cloud.ssh.sender import SshSender
from cloud.target import Request
from tfps.errors import UserError

_MEETING = 2222  # stands for the port that is found free on the first machine


def define_flags(values: flags.FlagValues) -> None:
    for name, default, text in (
        ("hosts", None, "The machines: a file with one per line, or HOST,HOST."),
        ("directory", None, "Directory on the machines; default: this one."),
        ("python", "python", "Interpreter, on all machines."),
    ):
        flags.DEFINE_string(name, default, text, flag_values=values)
    text = "Of as many as a machine has tasks; 0: free ones."
    flags.DEFINE_integer("first_port", 0, text, lower_bound=0, flag_values=values)
    text = "A line of bash that runs first, for the checks and the job, any number of times."
    flags.DEFINE_multi_string("setup", [], text, flag_values=values)


def from_flags(values: flags.FlagValues) -> "SshTarget":
    if not values.hosts:
        raise UserError("--hosts is missing: name the machines, in a file or as HOST,HOST")
    return SshTarget(
        PollOptions(values.wait_seconds, values.poll_seconds, last_looks=1),
        hosts.read(values.hosts),
        values.hosts,
        values.directory or os.getcwd(),
        values.python,
        values.first_port,
        values.setup,
    )


@dataclasses.dataclass
class SshTarget(RemoteTarget):
    """Machines without a scheduler."""

    name = "ssh"

    machines: Sequence[Host]
    named: str  # --hosts
    directory: str
    python: str
    first_port: int  # 0 for free ones
    setup: Sequence[str]
    meeting: int = _MEETING

    @property
    def again(self) -> str:
        return f"--target={self.name} --hosts={shlex.quote(self.named)}"

    def prepare(self, spec: JobSpec) -> JobSpec:
        """The job with a worker and a ps for each machine, unless it says how many."""
        if spec.module != JobSpec.module:
            raise UserError(f"--target=ssh runs {JobSpec.module} alone; leave --module out")
        if spec.role("evaluator"):
            raise UserError("--target=ssh has no evaluator: leave --evaluator out")
        if spec.role("worker"):
            return spec
        count, is_replicated = len(self.machines), spec.argument("mode.name") == "allreduce"
        if spec.argument("mode.name") == "local" or (is_replicated and count == 1):
            raise UserError(
                "one process needs no cluster: start `python -m trainer.task` on a machine"
            )
        workers, ps = (count - 1, 0) if is_replicated else (count, count)
        counts = {"worker": workers, "ps": ps}
        added = [Role(job, replicas) for job, replicas in counts.items() if replicas]
        return dataclasses.replace(spec, roles=(*spec.roles, *added))

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """What each machine runs."""
        list(self._ports(spec))  # refuses those that there are not
        own = [self.python, "-m", "cloud.node", f"--nodes={self._addresses()}"]
        own += [f"--port={self.first_port or self.meeting}"]
        if self.first_port:
            own += [f"--first_port={self.first_port + 1}"]
        own += [f"--workers={spec.replicas('worker')}", f"--ps={spec.replicas('ps')}"]
        own += [f"--max_restarts={spec.restarts}"]
        own += [f"--grace_seconds={job_spec.grace_seconds(spec) + 5}", "--", *spec.arguments]
        limit = ["timeout", str(spec.timeout_seconds)] if spec.timeout_seconds else []
        return tuple(
            {
                "host": host.name,
                "job": spec.name,
                "directory": self.directory,
                "environment": {**spec.environment, "RANK": str(rank)},
                "setup": list(self.setup),
                "command": own if rank else [*limit, *own],
            }
            for rank, host in enumerate(self.machines)
        )

    def sender(self) -> SshSender:
        return SshSender(self.machines)

    def submit(self, spec: JobSpec, wait: bool) -> int:
        """Looks at all machines, then starts the job there."""
        for text in job_spec.unused(spec):
            say(text)
        meeting = checks.check(self.machines, self._needs(spec))
        return RemoteTarget.submit(dataclasses.replace(self, meeting=meeting), spec, wait)

    def _addresses(self) -> str:
        return ",".join(host.address for host in self.machines)

    def _needs(self, spec: JobSpec) -> Needs:
        named = ",".join(spec.argument(name) for name in ("data.train", "data.eval"))
        config = spec.argument("config")
        paths = [path for path in named.split(",") if _is_path(path)]
        paths += [config] if config.endswith(".py") else []
        job_dir = posixpath.normpath(spec.job_dir) if _is_path(spec.job_dir) else ""
        return Needs(
            *(self.directory, self.python, paths, job_dir, list(self._ports(spec))),
            *(spec.environment, self.setup),
        )

    def _ports(self, spec: JobSpec) -> Iterator[Sequence[int]]:
        """The ports of each machine, where they are not free ones."""
        shares = Shares(len(self.machines), spec.replicas("worker"), spec.replicas("ps"))
        for rank in range(shares.nodes):
            tasks = sum(shares.counts(rank).values()) + (spec.chief_works and not rank)
            who = f"a launcher and {tasks} tasks"
            ports = job_spec.ports_from(self.first_port, tasks + 1, who) if self.first_port else ()
            yield ports[int(rank > 0) :]


def _is_path(text: str) -> bool:
    """Whether a job's argument names one file or directory of a machine."""
    return bool(text) and "://" not in text and not re.search(r"[{}*?\[]", text)
