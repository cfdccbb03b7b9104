"""What this process may have of its machine: memory and open files; and what it gives back."""

import ctypes
import logging
import os
import resource
import threading
import time

from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.job_dir import cgroup

# A larger limit helps nobody, and some programs look at every number below theirs.
_ENOUGH = 1 << 20
_OWN = 512  # of libraries, shards, storage and threads
# Counted with TensorFlow 2.21: a ps has one connection to each other task and one from it, the
# chief one to each and one from each ps, a worker one to and from each ps, none to a worker.
# While tasks are asked for a sign of life there is a third.
_EACH_PEER = 3
_OWN_OF_LAUNCHER = 128
_EACH_PROCESS = 3  # its port, its output, and a pipe while it starts
_TRIM_SECONDS = 20.0
_log = logging.getLogger(__name__)


def memory_limit() -> int:
    """The machine's memory in bytes, or less where a limit of the process or its container says."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min([*limits, *cgroup.memory_limits()])


def allow_files_of_task(cluster: Cluster) -> None:
    """Raises this process's limit as far as it can be; refuses one that is too low for its task."""
    _allow(_OWN + _EACH_PEER * _peers(cluster), cluster.name)


def allow_files_of_launcher(tasks: int) -> None:
    """The same for the program that starts all tasks on this machine."""
    _allow(_OWN_OF_LAUNCHER + _EACH_PROCESS * tasks, f"the launcher of {tasks} tasks")


def allow_files(count: int, who: str) -> None:
    """The same for a process that reads many files at the same time."""
    _allow(_OWN + count, who)


def _peers(cluster: Cluster) -> int:
    """How many tasks a task may be connected to: a worker is not to workers, but without ps."""
    others = len(cluster.chief) + len(cluster.ps)
    if cluster.job != "worker" or cluster.is_replicated:
        others += len(cluster.workers)
    return others


def _allow(needed: int, who: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _ENOUGH if hard == resource.RLIM_INFINITY else hard
    if needed > most:
        raise UserError(
            f"{who} needs up to {needed} open files, but may have {most}: raise the hard limit, "
            f"with `ulimit -Hn {needed}`, LimitNOFILE={needed} of the service that starts it, or "
            f"--ulimit nofile={needed} of the container engine"
        )
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(most, _ENOUGH)), hard))


def trim_memory() -> bool:
    """Gives the machine back what this process has freed and its C library keeps.

    glibc keeps what each thread frees for the next thread that asks, in pieces between others that
    are in use. A server has a hundred threads: after ten connections of a chief it was seen to keep
    170 MB on a ps, 230 MB on a worker, and more after each. False where the C library cannot.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return False
    library.malloc_trim(0)
    return True


def start_trimming_memory(seconds: float = _TRIM_SECONDS) -> None:
    """Gives back what is freed every few seconds, each time in 0.2 to 14 ms, until the end."""

    def run() -> None:
        while trim_memory():
            time.sleep(seconds)
        _log.debug("the C library has no malloc_trim: it keeps what is freed")

    threading.Thread(target=run, name="trim-memory", daemon=True).start()
