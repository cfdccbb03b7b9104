"""How the chief sees the tasks of its cluster before it is connected to them."""

import time
from collections.abc import Mapping, Sequence

from tfps.cluster.liveness import Liveness, probe
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.preflight import TaskCheck, Wanted, check_tasks
from tfps.cluster.prober import ask_all
from tfps.cluster.spec import Cluster
from tfps.errors import RunError
from tfps.job_dir import JobDir
from tfps.job_dir.task_name import TaskName

_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 30.0  # a ps that was let go ends within


def check_peers(
    cluster: Cluster, job_dir: JobDir, memory: Mapping[TaskName, int], limit_seconds: float
) -> list[TaskCheck]:
    """Looks whether every worker and ps can take part.

    Args:
        limit_seconds: How long to wait for those that do not answer yet.
    """
    return check_tasks(cluster.peers(), Wanted(cluster.tasks(), job_dir, memory), limit_seconds)


def wait_for_ps(
    cluster: Cluster, leaving: Sequence[int], monitor: TaskMonitor, limit_seconds: float
) -> None:
    """Waits until every ps can be reached, once those that are leaving are gone.

    Args:
        leaving: Indices of ps that can still be reached though they will end.
        monitor: Must see them too, before the run may rely on it again.
    """
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
                "task again with the same --job_dir to go on from the last checkpoint, or allow "
                "more time with --task_wait_seconds"
            )
        time.sleep(_POLL_SECONDS)


def _away(addresses: Mapping[TaskName, str], monitor: TaskMonitor) -> dict[TaskName, Liveness]:
    """The ps that do not answer, or that the monitor still takes for absent, and what was seen."""
    by_address = ask_all(addresses.values())
    seen = {ps: by_address[address] for ps, address in addresses.items()}
    outages = {ps: monitor.outage(ps) for ps in addresses}
    still = {ps: outage.liveness for ps, outage in outages.items() if outage}
    return {ps: each for ps, each in seen.items() if not each.answers} or still
