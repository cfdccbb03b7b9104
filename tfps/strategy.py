"""Connects the chief to its cluster."""

import concurrent.futures
import time
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.cluster import Cluster
from tfps.errors import LostPsError, RunError, UserError
from tfps.executor import ClusterExecutor
from tfps.failures import first_line
from tfps.own_port import port_error
from tfps.reachability import Reachability
from tfps.task_check import TaskCheck, check_tasks
from tfps.task_watch import TaskWatch

_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 30.0  # a ps that was let go ends within
_LEAST_SECONDS = 20.0  # to connect to tasks that have just answered


def connect(cluster: Cluster, job_dir: str, limit_seconds: float) -> ClusterExecutor:
    """Waits for every worker and ps, then makes this process their coordinator.

    Args:
        cluster: The cluster, as its chief sees it.
        job_dir: Where the tasks announce themselves.
        limit_seconds: How long to wait for the tasks to answer.

    Returns:
        Where to schedule closures.

    Raises:
        UserError: If a task does not answer in time or cannot take part, or the chief's own port is
            taken.
        LostPsError: If a task, of whatever job, is lost while it is being connected to.
        RunError: If connecting takes too long.
    """
    deadline = time.monotonic() + limit_seconds
    unfit = [found for found in check(cluster, job_dir, limit_seconds) if not found.is_fit]
    if unfit:
        raise UserError(
            f"not all tasks can be used: {'; '.join(map(str, unfit))}; tasks that do not answer "
            f"are waited for {limit_seconds:.0f} s (--connect_seconds)"
        )
    seconds = max(_LEAST_SECONDS, deadline - time.monotonic())
    # In a thread of its own: TensorFlow tries again for ever, or waits for a task without a limit.
    thread = concurrent.futures.ThreadPoolExecutor(1, "connect")
    connecting = thread.submit(_coordinator, cluster)
    try:
        coordinator = connecting.result(seconds)
    except TimeoutError:
        seen = _not_connected(cluster, job_dir, f"not connected after {seconds:.0f} s")
        raise RunError(seen) from None
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise LostPsError(_not_connected(cluster, job_dir, first_line(error))) from None
    thread.shutdown()
    return ClusterExecutor(coordinator, len(cluster.workers), len(cluster.ps))


def check(cluster: Cluster, job_dir: str, limit_seconds: float) -> list[TaskCheck]:
    """Looks whether every worker and ps can take part.

    Args:
        cluster: The cluster, as its chief sees it.
        job_dir: Where the tasks announce themselves.
        limit_seconds: How long to wait for those that do not answer yet.
    """
    tasks = {job: len(addresses) for job, addresses in cluster.spec().items()}
    return check_tasks(peers(cluster), tasks, job_dir, limit_seconds)


def peers(cluster: Cluster) -> dict[str, str]:
    """Addresses of all workers and ps by name, such as "worker 0"."""
    spec = cluster.spec()
    return {
        f"{job} {index}": address
        for job in ("ps", "worker")
        for index, address in enumerate(spec.get(job, []))
    }


def wait_for_ps(
    cluster: Cluster, leaving: Sequence[str], watch: TaskWatch, limit_seconds: float
) -> None:
    """Waits until every ps can be reached, once those that are leaving are gone.

    Args:
        cluster: The cluster, as its chief sees it.
        leaving: Names of ps, such as "ps 0", that can still be reached though they will end.
        watch: Must see them too, before the run may rely on it again.
        limit_seconds: How long to wait.

    Raises:
        RunError: If some cannot be reached in time; names each with its address.
    """
    addresses = {task: address for task, address in peers(cluster).items() if task[:2] == "ps"}
    deadline = time.monotonic() + min(_LEAVE_SECONDS, limit_seconds)
    while (
        any(Reachability.of(addresses[ps]).answers for ps in leaving)
        and time.monotonic() < deadline
    ):
        time.sleep(_POLL_SECONDS)
    deadline = time.monotonic() + limit_seconds
    while away := _away(addresses, watch):
        if time.monotonic() > deadline:
            names = ", ".join(f"{ps} at {addresses[ps]}" for ps in away)
            seen = "; ".join(f"{ps}: {each.value}, {each.what_to_do}" for ps, each in away.items())
            raise RunError(
                f"{names} did not come back within {limit_seconds:.0f} s ({seen}); start every "
                "task again with the same --job_dir to go on from the last checkpoint, or allow "
                "more time with --ps_wait_seconds"
            )
        time.sleep(_POLL_SECONDS)


def _away(addresses: Mapping[str, str], watch: TaskWatch) -> dict[str, Reachability]:
    """The ps that do not answer, or that the watch still takes for absent, and what was seen."""
    with concurrent.futures.ThreadPoolExecutor(len(addresses)) as pool:
        seen = dict(zip(addresses, pool.map(Reachability.of, addresses.values()), strict=True))
    absences = {ps: watch.absence(ps) for ps in addresses}
    still = {ps: absence.reachability for ps, absence in absences.items() if absence}
    return {ps: each for ps, each in seen.items() if not each.answers} or still


def _coordinator(cluster: Cluster) -> tf.distribute.coordinator.ClusterCoordinator:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.spec()),
        task_type=cluster.job,
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    try:
        strategy = tf.distribute.ParameterServerStrategy(resolver)
    except tf.errors.UnknownError as error:
        raise port_error(cluster, error.message) from None
    return tf.distribute.coordinator.ClusterCoordinator(strategy)


def _not_connected(cluster: Cluster, job_dir: str, seen: str) -> str:
    """What to say of a connection that did not come about although all tasks had answered."""
    unfit = [str(found) for found in check(cluster, job_dir, 0.0) if not found.is_fit]
    told = "; ".join(unfit) or "every task answers; look in their logs"
    return f"the chief cannot connect to its tasks ({seen}): {told}"
