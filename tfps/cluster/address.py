"""Addresses "host:port" as people write them, and whether this task's own port is free."""

import re
import socket

from tfps.cluster.spec import Cluster
from tfps.errors import UserError

_HOST = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]"
)


def host_port(where: str, address: str) -> tuple[str, int]:
    """Checks one address."""
    if "://" in address or "/" in address:
        raise UserError(f'{where}: {address!r} is a URL; write only "host:port"')
    host, colon, port = address.rpartition(":")
    if not colon or (address.startswith("[") and address.endswith("]")):
        raise UserError(f'{where}: {address!r} has no port; write it as "host:port"')
    if not host:
        raise UserError(f'{where}: {address!r} has no host; write it as "host:port"')
    if not _HOST.fullmatch(host):
        raise UserError(
            f"{where}: {host!r} is no host name; write a name, an IPv4 address or [IPv6]"
        )
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise UserError(
            f"{where}: {address!r} has the port {port!r}; write a number from 1 to 65535"
        )
    return host.lower().rstrip("."), int(port)


def refuse_taken_port(cluster: Cluster) -> None:
    """Asks the system, since TensorFlow's own message hides what is wrong."""
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
        reason: Why not, as the system or TensorFlow says it.
    """
    is_beside = cluster.chief_works and cluster.task == cluster.of_chief_worker.task
    where = "with --chief_worker_port" if is_beside else "in TF_CONFIG"
    return UserError(
        f"{cluster.name} cannot serve at {cluster.address}: {reason}; free the port, or give this "
        f"task another one {where}"
    )
