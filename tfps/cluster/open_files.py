"""How many files, sockets among them, a process may have open at once."""

import resource

from tfps.cluster.spec import Cluster
from tfps.errors import UserError

# A larger limit helps nobody, and some programs look at every number below theirs.
_ENOUGH = 1 << 20
_OWN = 512  # of libraries, shards, storage and threads
# Counted with TensorFlow 2.21: a ps has one connection to each other task and one from it, the
# chief one to each and one from each ps, a worker one to and from each ps, none to a worker.
# While tasks are asked for a sign of life there is a third.
_EACH_PEER = 3
_OWN_OF_LAUNCHER = 128
_EACH_PROCESS = 3  # its port, its output, and a pipe while it starts


def allow_for_task(cluster: Cluster) -> None:
    """Raises this process's limit as far as it can be; refuses one that is too low for its task."""
    _allow(_OWN + _EACH_PEER * _peers(cluster), cluster.name)


def allow_for_launcher(tasks: int) -> None:
    """The same for the program that starts all tasks on this machine."""
    _allow(_OWN_OF_LAUNCHER + _EACH_PROCESS * tasks, f"the launcher of {tasks} tasks")


def allow_for_files(count: int, who: str) -> None:
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
