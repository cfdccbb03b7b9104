"""Connects the chief to its cluster."""

import time
from collections.abc import Sequence

import tensorflow as tf

from tfps.cluster import Cluster
from tfps.errors import RunError, UserError
from tfps.executor import ClusterExecutor
from tfps.task_watch import TaskWatch, is_reachable, wait_until_reachable

_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 30.0  # a ps that was let go ends within


def connect(cluster: Cluster, limit_seconds: float) -> ClusterExecutor:
    """Waits for every worker and ps, then makes this process their coordinator.

    Args:
        cluster: The cluster, as its chief sees it.
        limit_seconds: How long to wait for the tasks to be reachable.

    Returns:
        Where to schedule closures.

    Raises:
        UserError: If a task is not reachable in time, or the chief's own port is taken.
    """
    wait_until_reachable(peers(cluster), limit_seconds)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.spec()),
        task_type=cluster.job,
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    try:
        strategy = tf.distribute.ParameterServerStrategy(resolver)
    except tf.errors.UnknownError as error:
        raise UserError(
            f"{cluster.name} cannot serve at its own address {cluster.address} ({error.message}); "
            "free the port, or give another one in TF_CONFIG"
        ) from None
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    return ClusterExecutor(coordinator, len(cluster.workers), len(cluster.ps))


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
    while any(is_reachable(addresses[ps]) for ps in leaving) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    deadline = time.monotonic() + limit_seconds
    while True:
        away = [f"{ps} at {at}" for ps, at in addresses.items() if not is_reachable(at)]
        away = away or watch.down("ps")
        if not away:
            return
        if time.monotonic() > deadline:
            raise RunError(
                f"{', '.join(away)} did not come back within {limit_seconds:.0f} s; start every "
                "task again with the same --job_dir to go on from the last checkpoint, or allow "
                "more time with --ps_wait_seconds"
            )
        time.sleep(_POLL_SECONDS)
