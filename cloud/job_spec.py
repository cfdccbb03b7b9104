"""What a job is, on whatever platform it runs."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from tfps.cluster.spec import CLUSTER_SPEC, JOBS, TF_CONFIG, TF_CONFIG_FILE
from tfps.cluster.tf_config import LAST_PORT, chief_worker_port_of
from tfps.errors import UserError
from tfps.job_dir.size import Size

_NAME = r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?"
# Kubernetes' own rule, which is the widest: https://kubernetes.io/docs/concepts/overview/
# working-with-objects/labels. Google Cloud's is narrower, and checked for Vertex AI.
_LABEL_PART = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL_PART}"
_LABEL_VALUE = rf"({_LABEL_PART})?"
_GOOGLE_KEY = r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?"
_GOOGLE_VALUE = r"([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)?"
_SINGLE = ("chief", "evaluator")  # of which a job has at most one
_TRUE = ("true", "t", "1")  # as absl reads booleans
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
MOST_BYTES = (1 << 17) - 1  # of an argument or of NAME=VALUE, in Linux
_RESTARTS = 3  # trainer.task's default of --chief_worker_restarts


def check_name(name: str) -> None:
    """Refuses a name that some platform would."""
    if not re.fullmatch(_NAME, name):
        raise UserError(
            f'--name={name}: write 1 to 40 lowercase letters, digits and "-", beginning with a '
            "letter and not ending with -"
        )


def check_labels(labels: Mapping[str, str], flag: str = "--label") -> None:
    """Refuses labels of a flag that every platform would."""
    for key, value in labels.items():
        if not re.fullmatch(_LABEL_KEY, key) or not re.fullmatch(_LABEL_VALUE, value):
            raise UserError(
                f"{flag}={key}={value}: keys and values are at most 63 letters, digits, "
                '"_", "-" and ".", and begin and end with a letter or digit; a key may have a '
                "domain and a slash before it, as in kueue.x-k8s.io/queue-name"
            )


def check_google_labels(labels: Mapping[str, str]) -> None:
    """Refuses labels that Google Cloud would."""
    for key, value in labels.items():
        if not re.fullmatch(_GOOGLE_KEY, key) or not re.fullmatch(_GOOGLE_VALUE, value):
            raise UserError(
                f"--label={key}={value}: on Google Cloud keys and values are at most 63 lowercase "
                'letters, digits, "_" and "-", begin and end with a letter or digit, keys with a '
                "letter"
            )


@dataclasses.dataclass(frozen=True)
class Role:
    """Equal tasks of a job, on one kind of machine; an empty text or 0 leaves it to the platform.

    A platform uses what it knows of the machine, and refuses what it cannot give: Vertex AI asks
    for a machine type, Kubernetes and Slurm for CPUs and memory.
    """

    job: str
    replicas: int = 1
    machine: str = ""  # the platform's type, such as n2-standard-8
    cpus: int = 0  # cores of each task
    memory_bytes: int = 0
    accelerator: str = ""  # the platform's name of a GPU, such as NVIDIA_L4
    accelerators: int = 0
    disk_gb: int = 0  # boot disk or scratch space of each task
    disk_type: str = ""  # the platform's, such as pd-ssd

    def __post_init__(self) -> None:
        if self.job not in JOBS:
            raise UserError(f"role {self.job!r} is unknown; use one of {', '.join(JOBS)}")
        if self.replicas < 1:
            raise UserError(
                f"{self.job}: {self.replicas} tasks; give 1 or more, or leave the role out"
            )
        if self.job in _SINGLE and self.replicas > 1:
            raise UserError(f"{self.job}: {self.replicas} tasks; a job has one {self.job} at most")
        for name in ("cpus", "memory_bytes", "accelerators", "disk_gb"):
            if getattr(self, name) < 0:
                raise UserError(f"{self.job}: {name}={getattr(self, name)} must be 0 or more")
        if bool(self.accelerator) != bool(self.accelerators):
            raise UserError(
                f"{self.job}: accelerator={self.accelerator!r}, accelerators={self.accelerators}; "
                f"give both, as in --machine={self.job}:accelerator=NVIDIA_L4:1, or neither"
            )


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """One job: what its tasks run, on how many machines of which kind, under which limits.

    Every task runs the same module with the same arguments; its role comes from TF_CONFIG, which
    the platform sets. With a chief alone there is no cluster: one process does everything. An empty
    text or 0 leaves a thing to the platform.
    """

    name: str  # 1 to 40 lowercase letters, digits and "-", beginning with a letter
    arguments: tuple[str, ...]
    roles: tuple[Role, ...]  # in the order chief, worker, ps, evaluator; only those with tasks
    module: str = "trainer.task"
    image: str = ""
    # Directory of the project whose source distribution is installed in the image before the start,
    # or the address of that file; empty if the image holds the project.
    package: str = ""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str = ""  # that the tasks run as
    network: str = ""  # that the tasks are in
    timeout_seconds: int = 0  # after which the job is ended
    queue_seconds: int = 0  # for which the job may wait for machines
    spot: bool = False  # machines may be taken away at any time, for a lower price
    restarts: int = 3  # of each task, or of the job where a platform knows only that

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_arguments(self)
        _check_roles(self.roles, self.argument("mode.name") == "allreduce")
        _check_environment(self.environment)
        check_labels(self.labels)
        for name in ("timeout_seconds", "queue_seconds", "restarts"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name}={getattr(self, name)} must be 0 or more")

    @property
    def job_dir(self) -> str:
        return self.argument("job_dir")

    @property
    def tasks(self) -> int:
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
        """Whether the arguments ask for a worker next to the chief."""
        return is_set("chief_works", self.arguments)

    def argument(self, name: str) -> str:
        """The value of a flag among the arguments, the last of several, empty without one."""
        return flag_value(name, self.arguments)


def split_at_tasks(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before `--`, and the tasks' arguments, which stand behind it."""
    place = list(argv).index("--") if "--" in argv else len(argv)
    return list(argv[:place]), list(argv[place + 1 :])


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
    if not spec.argument("flagfile"):  # which may have them
        for name in ("config", "job_dir"):
            if not spec.argument(name):
                raise UserError(f"the tasks' arguments have no --{name}: add it after --")


def ports_from(first: int, count: int, who: str, least: int = 1) -> range:
    """The ports of `--first_port`, all of which there must be; `who` needs them."""
    if not least <= first <= LAST_PORT + 1 - count:
        raise UserError(
            f"--first_port={first}: {who} need as many ports from {least} to {LAST_PORT}; give "
            "another one, or leave the flag out"
        )
    return range(first, first + count)


def _check_length(what: str, text: str) -> None:
    size = len(text.encode())
    if size > MOST_BYTES:
        raise UserError(
            f"{what} has {size} bytes, but a process can be given no text of more than "
            f"{MOST_BYTES}; put it into a file that the tasks read"
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


_OF_MACHINES = ("image", "package", "service_account", "network", "labels", "spot", "queue_seconds")
_DEFAULT = "25"  # of trainer.task's --grace_seconds


def grace_seconds(spec: JobSpec) -> int:
    """The tasks' --grace_seconds, rounded up."""
    text = spec.argument("grace_seconds") or _DEFAULT
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        raise UserError(f"--grace_seconds={text} is no number of seconds; write one such as 25")
    return math.ceil(float(text))


def with_default(spec: JobSpec, has_own_machines: bool) -> JobSpec:
    """A job whose arguments say what the worker next to the chief needs to know, if it has one.

    A job has one where its chief has a worker's machine and its arguments do not say
    --nochief_works. What is added comes before the job's own arguments, which therefore win.
    """
    added = []
    if has_own_machines and spec.module == "trainer.task" and has_workers_machine(spec):
        added.append("--chief_works")
    if not dataclasses.replace(spec, arguments=(*added, *spec.arguments)).chief_works:
        return spec
    if spec.restarts != _RESTARTS:
        added.append(f"--chief_worker_restarts={spec.restarts}")
    return dataclasses.replace(spec, arguments=(*added, *spec.arguments))


def resized(spec: JobSpec, size: Size) -> JobSpec:
    """The job with other numbers of workers and ps, where it has any."""
    counts = {"worker": size.workers, "ps": size.ps}
    roles = tuple(
        dataclasses.replace(role, replicas=counts.get(role.job, role.replicas))
        for role in spec.roles
    )
    return dataclasses.replace(spec, roles=roles)


def unused(spec: JobSpec) -> list[str]:
    """One line that names what the job asks of machines, if it does, where they are as they are."""
    names = [name for name in _OF_MACHINES if getattr(spec, name)]
    kinds = ("machine", "cpus", "memory_bytes", "accelerator", "disk_gb", "disk_type")
    if any(getattr(role, name) for role in spec.roles for name in kinds):
        names.append("machines")
    return [f"not used here: {', '.join(names)}"] if names else []


def has_workers_machine(spec: JobSpec) -> bool:
    """Whether the chief of a job with ps has all that each worker has, and it is said what."""
    chief, worker = spec.role("chief"), spec.role("worker")
    if chief is None or worker is None or not spec.role("ps"):
        return False
    if not (worker.machine or worker.cpus):
        return False
    return have_equal_machines(chief, worker)


def check_chief_works(spec: JobSpec) -> None:
    """Refuses a worker next to a chief that trains itself; by then all roles must be known."""
    if spec.chief_works and not spec.role("ps"):
        raise UserError(
            "--chief_works, but the job has no ps: its chief trains already; leave the flag out"
        )


def have_equal_machines(first: Role, second: Role) -> bool:
    return dataclasses.replace(first, job=second.job, replicas=second.replicas) == second


def refuse_idle_gpus(spec: JobSpec) -> None:
    """Refuses GPUs for tasks that compute nothing on them; without ps the chief trains as well."""
    for role in spec.roles:
        leads = role.job == "chief" and spec.role("ps") and not spec.chief_works
        if role.accelerator and (leads or role.job == "ps"):
            hint = ", or add --chief_works behind --" if leads else ""
            raise UserError(
                f"{role.job}: accelerator={role.accelerator}, but the {role.job} of a cluster "
                "computes nothing on a GPU; give GPUs to the workers with "
                f"--machine=worker:accelerator=…{hint}"
            )


def port(spec: JobSpec, chiefs_port: int) -> int | None:
    """The port of the worker next to the chief; None without one."""
    if not spec.chief_works:
        return None
    text = spec.argument("chief_worker_port") or "0"
    if not text.isdecimal() or int(text) > LAST_PORT or int(text) == chiefs_port:
        raise UserError(
            f"--chief_worker_port={text}: name a port from 1 to {LAST_PORT} that is not the "
            f"chief's, {chiefs_port}, or leave it out for {chief_worker_port_of(chiefs_port, 0)}"
        )
    return chief_worker_port_of(chiefs_port, int(text))
