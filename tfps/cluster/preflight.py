"""Checks whether the tasks of a cluster can take part in a run, before it starts or continues."""

import concurrent.futures
import dataclasses
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps import byte_size
from tfps.cluster.liveness import (
    Liveness,
    Prober,
    ProbeResult,
    ServerIdentity,
    ask_all,
    probe,
)
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.spec import Cluster
from tfps.errors import RunError
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import TaskInfo
from tfps.job_dir.task_name import TaskName

_ASK_SECONDS = 5.0
_REPLACED_SECONDS = 2.0
_ANNOUNCE_SECONDS = 3.0  # between a server's first answer and its announcement
_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 30.0  # a ps that was let go ends within
_MOST_THREADS = 64


@dataclasses.dataclass(frozen=True)
class TaskCheck:
    """What was found of one task."""

    task: TaskName
    address: str
    liveness: Liveness
    task_info: TaskInfo | None = None
    mismatch: str = ""  # why what answers there cannot take part
    incarnation: int | None = None  # None where the server did not say

    @property
    def answers(self) -> bool:
        return self.liveness.answers

    @property
    def is_fit(self) -> bool:
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
    """What tasks must be to take part."""

    tasks: Mapping[str, int]
    job_dir: JobDir
    memory: Mapping[TaskName, int]  # bytes that each needs; those that are left out are not asked


def check_tasks(
    addresses: Mapping[TaskName, str], wanted: Wanted, limit_seconds: float
) -> list[TaskCheck]:
    """Checks the tasks at the same time, each until it is fit, never will be, or the time is up."""
    deadline = time.monotonic() + limit_seconds
    task_at = {address: task for task, address in addresses.items()}
    answered: set[str] = set()
    found: queue.Queue[Callable[[], TaskCheck]] = queue.Queue()

    def record(result: ProbeResult) -> None:
        task, address, identity = task_at[result.address], result.address, result.identity
        if address in answered:
            return
        if identity is None:
            check = TaskCheck(task, address, result.liveness)
            found.put(lambda: check)
        else:  # what it has announced may take a while to read
            answered.add(address)
            future = pool.submit(_of_server, task, address, identity, wanted)
            future.add_done_callback(lambda each: found.put(each.result))

    prober = Prober(addresses.values(), _POLL_SECONDS, _ASK_SECONDS)
    checks: dict[TaskName, TaskCheck] = {}
    with concurrent.futures.ThreadPoolExecutor(_MOST_THREADS, "check") as pool:
        prober.start(record)
        try:
            while len(checks) < len(addresses):  # each task gives something within a limit
                check = found.get()()
                is_known = check.mismatch or check.incarnation is not None
                if is_known or time.monotonic() > deadline:
                    checks[check.task] = check
        finally:
            prober.stop()
    return [checks[task] for task in addresses]


def _of_server(task: TaskName, address: str, identity: ServerIdentity, wanted: Wanted) -> TaskCheck:
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


def wait_for_ps(
    cluster: Cluster, leaving: Sequence[int], monitor: TaskMonitor, limit_seconds: float
) -> None:
    """Waits until every ps can be reached, also as `monitor` sees it, once `leaving` are gone."""
    addresses = {task: address for task, address in cluster.peers().items() if task.job == "ps"}
    deadline = time.monotonic() + min(_LEAVE_SECONDS, limit_seconds)
    going = [addresses[TaskName("ps", index)] for index in leaving]
    while any(probe(address).answers for address in going) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    deadline = time.monotonic() + limit_seconds
    while away := _away(addresses, monitor):
        if time.monotonic() > deadline:
            names = ", ".join(f"{ps} at {addresses[ps]}" for ps in away)
            seen = "; ".join(f"{ps}: {each.value}, {each.what_to_do}" for ps, each in away.items())
            raise RunError(
                f"{names} did not come back within {limit_seconds:.0f} s ({seen}); start every "
                "task again with the same --job_dir to resume from the last checkpoint, or allow "
                "more time with --task_wait_seconds"
            )
        time.sleep(_POLL_SECONDS)


def _away(addresses: Mapping[TaskName, str], monitor: TaskMonitor) -> dict[TaskName, Liveness]:
    """The ps that do not answer, or that the monitor still takes for absent, and what was seen."""
    by_address = ask_all(addresses.values())
    seen = {ps: by_address[address].liveness for ps, address in addresses.items()}
    outages = {ps: monitor.outage(ps) for ps in addresses}
    still = {ps: outage.liveness for ps, outage in outages.items() if outage}
    return {ps: each for ps, each in seen.items() if not each.answers} or still


class Incarnations:
    """The servers that a run is connected to.

    A server that takes the place of another knows nothing of what that one was asked. Mostly it
    says so; but who waits for a tensor of it, as TensorFlow's workers do, may wait for ever.
    """

    def __init__(self, checks: Sequence[TaskCheck], job: str):
        """Those of a job's tasks that had answered before they were connected to."""
        self._checks = [
            each for each in checks if each.task.job == job and each.incarnation is not None
        ]

    def replaced(self) -> list[TaskName]:
        """The tasks in whose place another server answers now; who is silent is the monitor's."""
        seen = ask_all([each.address for each in self._checks], _REPLACED_SECONDS)
        return [
            each.task
            for each in self._checks
            if (identity := seen[each.address].identity)
            and identity.incarnation != each.incarnation
        ]
