"""What starts one task of a local cluster, as data."""

import contextlib
import dataclasses
import errno
import pathlib
import socket
import subprocess
import sys
from collections.abc import Mapping

from cloud.job_spec import JobSpec
from tfps.cluster.spec import CLUSTER_SPEC, TF_CONFIG, TF_CONFIG_FILE, Cluster
from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_NONE = "-1"
_QUERY = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_ANSWER_SECONDS = 60.0
SHARED = {"PYTHONUNBUFFERED": "1"}  # what every task has in its environment
TaskEnvironments = Mapping[tuple[str, int], Mapping[str, str]]


class Ports:
    """Free ports of this machine, held until `close`; a context manager."""

    def __init__(self, count: int):
        self._held = contextlib.ExitStack()
        self.numbers: list[int] = []
        try:
            for _ in range(count):
                self.numbers.append(self._held.enter_context(_bound()).getsockname()[1])
        except OSError as error:
            self.close()
            raise UserError(
                f"cannot reserve {count} free ports ({error.strerror}); start fewer tasks, raise "
                "`ulimit -n`, or end what holds the ports of net.ipv4.ip_local_port_range"
            ) from error

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> "Ports":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _bound() -> socket.socket:
    """A socket bound to a free port on every address, of both families where there is IPv6."""
    try:
        return _bind(socket.AF_INET6, "::")
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
    return _bind(socket.AF_INET, "0.0.0.0")  # noqa: S104 - it never listens


def _bind(family: socket.AddressFamily, address: str) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind((address, 0))
    except OSError:
        held.close()
        raise
    return held


def owned(tasks: Cluster, each: int, environ: Mapping[str, str]) -> TaskEnvironments:
    """By task, variables that give each that trains GPUs of its own; all others see none.

    Workers train; without ps the chief does too, and comes first. An evaluator has the GPUs that
    are left. With 0 for each task, all GPUs are for all tasks; those that the launcher's
    environment hides are given to nobody.
    """
    if not each:
        return {}
    gpus = _available(environ)
    training = [("chief", 0)] if not tasks.ps else []
    training += [("worker", index) for index in range(len(tasks.workers))]
    needed = each * len(training)
    if len(gpus) < needed:
        raise UserError(
            f"--gpus_per_worker={each}: {len(training)} tasks train, which takes {needed} GPUs, "
            f"and this machine has {len(gpus)} to give; start fewer workers, or leave the flag out "
            "for all of them to share what there is"
        )
    lists = {task: gpus[each * k : each * (k + 1)] for k, task in enumerate(training)}
    lists |= {("evaluator", index): gpus[needed:] for index in range(len(tasks.evaluators))}
    lists |= {("ps", index): [] for index in range(len(tasks.ps))}
    lists.setdefault(("chief", 0), [])
    order = environ.get(_ORDER, "PCI_BUS_ID")  # as nvidia-smi counts
    return {task: {VISIBLE: ",".join(mine) or _NONE, _ORDER: order} for task, mine in lists.items()}


def _available(environ: Mapping[str, str]) -> list[str]:
    if VISIBLE in environ:
        # CUDA takes the list up to the first name that it does not know.
        named = [name.strip() for name in environ[VISIBLE].split(",")]
        return named[: named.index(_NONE)] if _NONE in named else [name for name in named if name]
    try:
        found = subprocess.run(
            _QUERY, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"--gpus_per_worker: which GPUs there are is unknown, {' '.join(_QUERY)} fails "
            f"({error}); name them in {VISIBLE}, or leave the flag out"
        ) from None
    return found.stdout.split()


@dataclasses.dataclass(frozen=True)
class Command:
    """The command line and environment of one task."""

    job: str
    index: int
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: pathlib.Path  # the task's native log, which may never come to be

    @property
    def name(self) -> str:
        """The task for people: "chief", "worker 0"."""
        return TaskName(self.job, self.index).label


def commands(
    tasks: Cluster,
    spec: JobSpec,
    log_dir: pathlib.Path,
    environ: Mapping[str, str],
    progress: str | None,
    gpus: TaskEnvironments,
) -> list[Command]:
    """The commands of every task, servers first, then the evaluator, the chief last.

    A cluster that the launcher's environment describes is left out. The chief shows progress "live"
    or as "lines"; None adds no such flag. No `gpus` lets each task use all of them.
    """
    inherited = {
        name: value
        for name, value in environ.items()
        if name not in (TF_CONFIG, TF_CONFIG_FILE, CLUSTER_SPEC)
    }
    jobs = {"ps": tasks.ps, "worker": tasks.workers, "evaluator": tasks.evaluators}
    found = []
    for job, addresses in {**jobs, "chief": tasks.chief}.items():
        for index in range(len(addresses)):
            log = log_dir / f"{job}-{index}.log"
            argv = [sys.executable, "-m", spec.module, *spec.arguments, f"--tensorflow_log={log}"]
            if job == "chief" and progress:
                argv.append(f"--progress={progress}")
            own = {**spec.environment, **SHARED}
            if not tasks.is_local:
                own[TF_CONFIG] = tasks.tf_config(job, index)
            own |= gpus.get((job, index), {})
            found.append(Command(job, index, tuple(argv), inherited | own, log))
    return found
