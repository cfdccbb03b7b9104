"""Looks whether this task can serve at its own address, before TensorFlow tries."""

import socket

from tfps.cluster.spec import Cluster
from tfps.errors import UserError


def refuse_taken_port(cluster: Cluster) -> None:
    """Asks the system, since TensorFlow's own message hides what is wrong.

    Raises:
        UserError: If another program has the port.
    """
    port = int(cluster.address.rsplit(":", 1)[1])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise port_error(cluster, error.strerror or str(error)) from None


def port_error(cluster: Cluster, reason: str) -> UserError:
    """The error of a task that cannot serve.

    Args:
        cluster: The cluster, as the task sees it.
        reason: Why not, as the system or TensorFlow says it.
    """
    return UserError(
        f"{cluster.name} cannot serve at {cluster.address}: {reason}; free the port, or give this "
        "task another one in TF_CONFIG"
    )
