"""What a job is, on whatever platform it runs."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from cloud import names
from cloud.role import Role
from tfps.cluster.spec import CLUSTER_SPEC, JOBS, TF_CONFIG, TF_CONFIG_FILE
from tfps.errors import UserError
from tfps.experiment import field_flags

_TRUE = ("true", "t", "1")  # as absl reads booleans
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_MOST_BYTES = (1 << 17) - 1  # of an argument or of NAME=VALUE, in Linux


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """One job: what its tasks run, on how many machines of which kind, under which limits.

    Every task runs the same module with the same arguments; its role comes from TF_CONFIG, which
    the platform sets. With a chief alone there is no cluster: one process that does everything.

    Attributes:
        name: 1 to 40 lowercase letters, digits and "-", beginning with a letter.
        roles: In the order chief, worker, ps, evaluator; roles without tasks are left out.
        package: Directory of the project whose source distribution is installed in the image before
            the start, or the address of that file; empty if the image holds the project.
        service_account: Account that the tasks run as; empty for the platform's default.
        network: Network that the tasks are in; empty for the platform's default.
        timeout_seconds: After which the job is ended; 0 for the platform's own limit, if any.
        queue_seconds: How long the job may wait for its machines; 0 for the platform's own limit.
        spot: Whether machines may be taken away at any time, for a lower price.
        restarts: How often one task is restarted, or where a platform knows only that, the job.
    """

    name: str
    arguments: tuple[str, ...]
    roles: tuple[Role, ...]
    module: str = "trainer.task"
    image: str = ""
    package: str = ""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str = ""
    network: str = ""
    timeout_seconds: int = 0
    queue_seconds: int = 0
    spot: bool = False
    restarts: int = 3

    def __post_init__(self) -> None:
        names.check_name(self.name)
        _check_arguments(self)
        _check_roles(self.roles, self.argument("mode.name") == "allreduce")
        if self.chief_works and not self.role("ps"):
            raise UserError(
                "--chief_works, but the job has no ps: its chief trains already; leave the flag out"
            )
        _check_environment(self.environment)
        names.check_labels(self.labels)
        for name in ("timeout_seconds", "queue_seconds", "restarts"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name}={getattr(self, name)} must be 0 or more")

    @property
    def job_dir(self) -> str:
        """The tasks' --job_dir, empty if they have none."""
        return self.argument("job_dir")

    @property
    def tasks(self) -> int:
        """Number of tasks, of all roles."""
        return sum(role.replicas for role in self.roles)

    def role(self, job: str) -> Role | None:
        """The role of that name, None if the job has no such tasks."""
        return next((role for role in self.roles if role.job == job), None)

    def replicas(self, job: str) -> int:
        """Number of tasks of a role, 0 if the job has none."""
        role = self.role(job)
        return role.replicas if role else 0

    @property
    def chief_works(self) -> bool:
        """Whether the arguments ask for a worker beside the chief."""
        return is_set("chief_works", self.arguments)

    def argument(self, name: str) -> str:
        """The value of a flag among the arguments, the last of several, empty without one."""
        return flag_value(name, self.arguments)


def flag_value(name: str, arguments: Sequence[str]) -> str:
    """The value of a flag among a task's arguments, the last of several, empty without one."""
    found = ""
    for place, text in enumerate(arguments):
        if match := re.fullmatch(rf"--?{re.escape(name)}(?:=(.*))?", text, re.DOTALL):
            after = arguments[place + 1] if place + 1 < len(arguments) else ""
            found = after if match[1] is None else match[1]
    return found


def is_set(name: str, arguments: Sequence[str]) -> bool:
    """The value of a boolean flag among a task's arguments, the last of several, false without."""
    found = False
    for text in arguments:
        if match := re.fullmatch(rf"--?(no)?{name}(?:=(.*))?", text, re.DOTALL):
            found = (match[2] or "true").lower() in _TRUE and not match[1]
    return found


def _check_arguments(spec: JobSpec) -> None:
    if not spec.arguments:
        raise UserError(
            "the tasks have no arguments: put them after --, for example "
            "-- --config=configs/census.py --job_dir=gs://BUCKET/census"
        )
    for argument in spec.arguments:
        _check_length(f"the tasks' argument {argument[:40]}…", argument)
    if not all(part.isidentifier() for part in spec.module.split(".")):
        raise UserError(
            f"--module={spec.module}: there is no such module to run with `python -m`; write a "
            "dotted name such as trainer.task"
        )
    if spec.module != "trainer.task":
        return
    field_flags.refuse_former(spec.arguments)
    if not spec.argument("flagfile"):  # which may have them
        for name in ("config", "job_dir"):
            if not spec.argument(name):
                raise UserError(f"the tasks' arguments have no --{name}: add it after --")


def _check_length(what: str, text: str) -> None:
    size = len(text.encode())
    if size > _MOST_BYTES:
        raise UserError(
            f"{what} has {size} bytes, but a process can be given no text of more than "
            f"{_MOST_BYTES}; put it into a file that the tasks read"
        )


def _check_roles(roles: Sequence[Role], is_replicated: bool) -> None:
    found = [role.job for role in roles]
    if found != [job for job in JOBS if job in found]:
        raise UserError(
            f"roles are {', '.join(found) or 'none'}; write each once, in the order "
            f"{', '.join(JOBS)}"
        )
    if "chief" not in found:
        raise UserError("the job has no chief, which runs the training; add one")
    if ("worker" in found) != ("ps" in found) and not (is_replicated and "worker" in found):
        missing, other = ("ps", "workers") if "worker" in found else ("worker", "ps")
        raise UserError(
            f"the job has {other} but no {missing}: give --workers=1 and --ps=1 or more, or both "
            "0 for one process without a cluster; workers alone need --mode.name=allreduce after --"
        )
    if "evaluator" in found and "worker" not in found:
        raise UserError(
            "a job without workers and ps evaluates in its one process: leave --evaluator out"
        )


def _check_environment(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if not re.fullmatch(_VARIABLE, name):
            raise UserError(f"--env={name}=…: {name!r} is no name of an environment variable")
        if name in (TF_CONFIG, TF_CONFIG_FILE, CLUSTER_SPEC):
            raise UserError(f"--env={name}=…: the platform sets {name} for each task; leave it out")
        _check_length(f"--env={name}=…", f"{name}={value}")
