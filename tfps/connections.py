"""This process's own TCP connections to other tasks, whoever in it has opened them.

TensorFlow's channels have no keepalive, and no option gives them one: a call to a task that was
stopped, or whose packets are dropped, waits for ever. But the sockets are this process's.
"""

import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence

from tfps.http2 import Http2Connection

_OPEN_FILES = "/proc/self/fd"
# After so long without a packet the kernel asks; without an answer it breaks the connection.
_IDLE_SECONDS, _ASK_SECONDS, _ASKS = 10, 5, 3
_UNACKNOWLEDGED_SECONDS = _IDLE_SECONDS + _ASK_SECONDS * _ASKS
_AGAIN_SECONDS = 10.0

Place = tuple[str, int]  # an IP address and a port


def connections_to(addresses: Sequence[str]) -> Iterator[tuple[str, socket.socket]]:
    """Open connections to tasks, but for those that only ask for a sign of life.

    Args:
        addresses: `host:port` of the tasks.

    Yields:
        Address and connection, a handle that is closed when it was used.
    """
    addresses_at = {place: address for address in addresses for place in _places(address)}
    for name in os.listdir(_OPEN_FILES):
        if int(name) in Http2Connection.open_descriptors:
            continue
        try:
            descriptor = os.dup(int(name))
        except OSError:  # closed meanwhile
            continue
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(socket.socket(fileno=descriptor))
            except OSError:  # no socket
                os.close(descriptor)
                continue
            peer = _peer(connection)
            if peer in addresses_at:
                yield addresses_at[peer], connection


def keep_alive(connection: socket.socket) -> None:
    """Lets the kernel break a connection whose packets are not acknowledged any more."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, _ASK_SECONDS),
        (socket.TCP_KEEPCNT, _ASKS),
        (socket.TCP_USER_TIMEOUT, 1000 * _UNACKNOWLEDGED_SECONDS),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def start_keep_alive(addresses: Sequence[str]) -> None:
    """Keeps connections to tasks alive until this process ends, those opened later too."""

    def run() -> None:
        while True:
            for _, connection in connections_to(addresses):
                with contextlib.suppress(OSError):  # it has ended by itself
                    keep_alive(connection)
            time.sleep(_AGAIN_SECONDS)

    threading.Thread(target=run, name="keep-alive", daemon=True).start()


def _places(address: str) -> set[Place]:
    host, port = address.rsplit(":", 1)
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except socket.gaierror:
        return set()
    return {_place(*place[:2]) for *_, place in found}


def _peer(connection: socket.socket) -> Place | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        return _place(*connection.getpeername()[:2])
    except OSError:  # not connected, or not any more
        return None


def _place(host: str, port: int) -> Place:
    """An address in one form, where IPv4 looks the same in a socket of either family."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip), port
