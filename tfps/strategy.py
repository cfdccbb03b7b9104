"""Connects the chief to its cluster."""

import tensorflow as tf

from tfps.cluster import Cluster
from tfps.errors import UserError
from tfps.executor import ClusterExecutor
from tfps.task_watch import wait_until_reachable


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
