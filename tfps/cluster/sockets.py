"""This process's own TCP connections to other tasks, whoever in it has opened them.

TensorFlow's channels have no keepalive, and no option gives them one: a call to a task that was
stopped, or whose packets are dropped, waits for ever. But the sockets are this process's.
"""

import concurrent.futures
import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Collection, Iterator, Sequence

from tfps.cluster.http2 import Http2Connection
from tfps.cluster.names import names

_OPEN_FILES = "/proc/self/fd"
# After so long without a packet the kernel asks; without an answer it breaks the connection.
_IDLE_SECONDS, _ASK_SECONDS, _ASKS = 10, 5, 3
_UNACKNOWLEDGED_SECONDS = _IDLE_SECONDS + _ASK_SECONDS * _ASKS
_AGAIN_SECONDS = 10.0
_LOOKUP_SECONDS = 5.0  # of all names together

Place = tuple[str, int]  # an IP address and a port


class Connections:
    """This process's connections to some tasks, told by where their other ends are.

    A task's name is looked up when there is a connection that may be to it, and again when there is
    one to a place where no task is known to be: one of them has moved.
    """

    def __init__(self, addresses: Sequence[str]):
        self._addresses: dict[int, list[str]] = {}  # by port
        for address in addresses:
            self._addresses.setdefault(int(address.rsplit(":", 1)[1]), []).append(address)
        self._address_at: dict[Place, str] = {}
        self._known_ports: set[int] = set()

    def open_now(self) -> Iterator[tuple[str, socket.socket]]:
        """Those that are open, but for those that only ask for a sign of life."""
        seen: set[str] = set()
        strange: set[int] = set()
        for place, connection in _connections_to_ports(self._addresses.keys()):
            if place not in self._address_at and place[1] not in strange:
                strange.add(place[1])
                self._look_up(place[1], seen)
            if address := self._address_at.get(place):
                seen.add(address)
                yield address, connection

    def _look_up(self, port: int, seen: Collection[str]) -> None:
        """Finds the tasks of a port of which no connection has been seen; waits the first time."""
        sought = [address for address in self._addresses[port] if address not in seen]
        for address in sought:
            names.doubt(address)
        wait_seconds = 0.0 if port in self._known_ports else _LOOKUP_SECONDS
        self._known_ports.add(port)
        deadline = time.monotonic() + wait_seconds
        for lookup in [names.ask(address) for address in sought]:
            concurrent.futures.wait([lookup], max(0.0, deadline - time.monotonic()))
        for address in sought:
            lookup = names.ask(address)
            if lookup.done() and not lookup.exception():
                self._address_at |= {_place(*at[:2]): address for _, at in lookup.result()}


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
    """Keeps connections to tasks alive until this process ends, those opened later too.

    They are told by the tasks' ports alone, without a look at the name service: to keep some other
    connection alive too does no harm.
    """
    ports = {int(address.rsplit(":", 1)[1]) for address in addresses}

    def run() -> None:
        while True:
            for _, connection in _connections_to_ports(ports):
                with contextlib.suppress(OSError):  # it has ended by itself
                    keep_alive(connection)
            time.sleep(_AGAIN_SECONDS)

    threading.Thread(target=run, name="keep-alive", daemon=True).start()


def _connections_to_ports(ports: Collection[int]) -> Iterator[tuple[Place, socket.socket]]:
    """Where the other ends of some of this process's connections are, with the connections."""
    for peer, connection in own_connections():
        if peer[1] in ports:
            yield peer, connection


def own_connections() -> Iterator[tuple[Place, socket.socket]]:
    """Where the other ends of this process's connections are, with handles to be used at once."""
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
            if peer := _peer(connection):
                yield peer, connection


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
