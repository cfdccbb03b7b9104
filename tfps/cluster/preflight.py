"""Looks whether a task can take part in a run, before the run begins."""

import concurrent.futures
import dataclasses
import queue
import time
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tfps import byte_size
from tfps.cluster.identity import ServerIdentity
from tfps.cluster.liveness import Liveness
from tfps.cluster.prober import Prober, Sighting
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import TaskInfo
from tfps.job_dir.task_name import TaskName

_ASK_SECONDS = 5.0
_ANNOUNCE_SECONDS = 3.0  # between a server's first answer and its announcement
_POLL_SECONDS = 0.2
_MOST_THREADS = 64


@dataclasses.dataclass(frozen=True)
class TaskCheck:
    """What was found of one task.

    Attributes:
        task_info: What runs it; None where that is unknown.
        mismatch: Why what answers there cannot take part, empty if it can.
        incarnation: The number that its server gave itself; None where it did not say.
    """

    task: TaskName
    address: str
    liveness: Liveness
    task_info: TaskInfo | None = None
    mismatch: str = ""
    incarnation: int | None = None

    @property
    def answers(self) -> bool:
        """Whether a TensorFlow server answers there."""
        return self.liveness is Liveness.ANSWERS

    @property
    def is_fit(self) -> bool:
        """Whether the task can take part."""
        return self.answers and not self.mismatch

    @property
    def what_to_do(self) -> str:
        """How to fix what is wrong, empty if nothing is."""
        return self.mismatch if self.answers else self.liveness.what_to_do

    def __str__(self) -> str:
        """One clause of a message."""
        place = f"{self.task} at {self.address}: "
        return place + (self.mismatch or f"{self.liveness.value} ({self.what_to_do})")


class Wanted(NamedTuple):
    """What tasks must be to take part.

    Attributes:
        memory: How many bytes each needs; those that are left out are not asked.
    """

    tasks: Mapping[str, int]
    job_dir: JobDir
    memory: Mapping[TaskName, int]


def check_tasks(
    addresses: Mapping[TaskName, str], wanted: Wanted, limit_seconds: float
) -> list[TaskCheck]:
    """Checks the tasks at the same time, each until it is fit, never will be, or the time is up.

    Args:
        wanted: What they must be.
        limit_seconds: How long to wait for those that do not answer yet.
    """
    deadline = time.monotonic() + limit_seconds
    task_at = {address: task for task, address in addresses.items()}
    asking: set[str] = set()
    found: queue.Queue[concurrent.futures.Future[TaskCheck]] = queue.Queue()

    def note(sighting: Sighting) -> None:
        address = sighting.address
        if not sighting.liveness.answers:
            seen: concurrent.futures.Future[TaskCheck] = concurrent.futures.Future()
            seen.set_result(TaskCheck(task_at[address], address, sighting.liveness))
            found.put(seen)
        elif address not in asking:  # else a thread talks with it, or has
            asking.add(address)
            pool.submit(ask, address).add_done_callback(found.put)

    def ask(address: str) -> TaskCheck:
        check = _of_what_answers(task_at[address], address, wanted)
        if not check.answers:
            asking.discard(address)
        return check

    prober = Prober(addresses.values(), _POLL_SECONDS, _ASK_SECONDS)
    checks: dict[TaskName, TaskCheck] = {}
    with concurrent.futures.ThreadPoolExecutor(_MOST_THREADS, "check") as pool:
        prober.start(note)
        try:
            while len(checks) < len(addresses):  # each task gives something within a limit
                check = found.get().result()
                if check.answers or time.monotonic() > deadline:
                    checks[check.task] = check
        finally:
            prober.stop()
    return [checks[task] for task in addresses]


def _of_what_answers(task: TaskName, address: str, wanted: Wanted) -> TaskCheck:
    """The check of a task whose address has answered."""
    identity = ServerIdentity.ask(address, _ASK_SECONDS)
    if identity is None:
        return TaskCheck(task, address, Liveness.FOREIGN)
    return _of_server(task, address, identity, wanted)


def _of_server(task: TaskName, address: str, identity: ServerIdentity, wanted: Wanted) -> TaskCheck:
    """The check of what answers."""
    if identity.task != task:
        return TaskCheck(
            task,
            address,
            Liveness.ANSWERS,
            mismatch=f"it says it is {identity.task}; give all tasks the same cluster in TF_CONFIG",
        )
    task_info = _task_info(task, identity, wanted.job_dir)
    mismatch = ""
    if task_info:
        mismatch = _mismatch(task_info, wanted.tasks) or _shortage(task, task_info, wanted)
    return TaskCheck(task, address, Liveness.ANSWERS, task_info, mismatch, identity.incarnation)


def _task_info(task: TaskName, identity: ServerIdentity, job_dir: JobDir) -> TaskInfo | None:
    """What that very server has announced; None if it announces nothing."""
    deadline = time.monotonic() + _ANNOUNCE_SECONDS
    while True:
        found = TaskInfo.read(job_dir, task)
        if found and found.incarnation == identity.incarnation:
            return found
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_SECONDS)


def _mismatch(task_info: TaskInfo, tasks: Mapping[str, int]) -> str:
    """Why a task of ours cannot take part, empty if it can."""
    theirs, ours = task_info.tensorflow, tf.__version__
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        return f"it runs TensorFlow {theirs}, the chief {ours}; install one version for all"
    if task_info.tasks != dict(tasks):
        return (
            f"its TF_CONFIG has {_counts(task_info.tasks)}, the chief's {_counts(tasks)}; give "
            "all tasks the same cluster, and --chief_works, which adds a worker, to all or none"
        )
    return ""


def _shortage(task: TaskName, task_info: TaskInfo, wanted: Wanted) -> str:
    """How much memory a task lacks, empty if it has enough."""
    needed, held = wanted.memory.get(task, 0), task_info.memory_bytes
    if needed <= held:
        return ""
    hint = "give it more"
    if task.job == "ps":
        hint += (
            ", or take more ps, of which each holds less (--dry_run shows it); or say with "
            "--ps_memory what a ps may have, if it is not that"
        )
    return (
        f"it needs about {byte_size.show(needed)} of memory, and may have {byte_size.show(held)}; "
        f"{hint}"
    )


def _counts(tasks: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {job}" for job, number in sorted(tasks.items()))
