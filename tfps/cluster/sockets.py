"""This process's own TCP connections to other tasks, whoever in it has opened them.

TensorFlow's channels have no keepalive, and no option gives them one: a call to a task that was
stopped, or whose packets are dropped, waits for ever. But the sockets are this process's.
"""

import contextlib
import ipaddress
import os
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterator, Sequence

from tfps.cluster.liveness import USER_TIMEOUT_MS

_OPEN_FILES = "/proc/self/fd"
# After so long without a packet the kernel asks; without an answer it breaks the connection.
_IDLE_SECONDS, _ASK_SECONDS, _ASKS = 10, 5, 3
_UNACKNOWLEDGED_SECONDS = _IDLE_SECONDS + _ASK_SECONDS * _ASKS
_AGAIN_SECONDS = 10.0
_LOOKUP_SECONDS = 5.0  # for all names of a port, and at least between two lookups of them
_MOST_LOOKUPS = 8  # at the same time
# Of Linux's `struct tcp_info` (include/uapi/linux/tcp.h): tcpi_bytes_acked, tcpi_bytes_received.
_COUNTS, _OFFSET = struct.Struct("QQ"), 120
_ROOM = 256

Place = tuple[str, int]  # an IP address and a port
Counts = tuple[int, int]  # bytes sent and received


class Connections:
    """This process's connections to some tasks, known by where their other ends are.

    A task's name is looked up when there is a connection that may be to it, and again when there is
    one to a place where no task is known to be: one of them has moved.
    """

    def __init__(self, addresses: Sequence[str]):
        self._addresses: dict[int, list[str]] = {}  # by port
        for address in addresses:
            self._addresses.setdefault(int(address.rsplit(":", 1)[1]), []).append(address)
        self._address_at: dict[Place, str] = {}
        self._looked_up: dict[int, float] = {}  # when, by port

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
        now, last = time.monotonic(), self._looked_up.get(port)
        if last is not None and now - last < _LOOKUP_SECONDS:
            return
        self._looked_up[port] = now
        sought = [address for address in self._addresses[port] if address not in seen]
        threads = [  # which a name service that hangs leaves behind
            threading.Thread(target=self._resolve, args=(sought[k::_MOST_LOOKUPS],), daemon=True)
            for k in range(min(_MOST_LOOKUPS, len(sought)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads if last is None else ():
            thread.join(max(0.0, now + _LOOKUP_SECONDS - time.monotonic()))

    def _resolve(self, addresses: Sequence[str]) -> None:
        for address in addresses:
            host, port = address.rsplit(":", 1)
            with contextlib.suppress(OSError, UnicodeError):  # there is no such name
                found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
                self._address_at |= {_place(*at[:2]): address for *_, at in found}


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

    They are known by the tasks' ports alone, without a look at the name service: to keep some other
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
    for peer, connection in own_connections():
        if peer[1] in ports:
            yield peer, connection


def own_connections() -> Iterator[tuple[Place, socket.socket]]:
    """Where the other ends of this process's connections are, with handles to be used at once.

    Those of a `Prober` are left out.
    """
    for name in os.listdir(_OPEN_FILES):
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
        if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == USER_TIMEOUT_MS:
            return None  # it only asks for a sign of life
        return _place(*connection.getpeername()[:2])
    except OSError:  # not connected, or not any more
        return None


def _place(host: str, port: int) -> Place:
    """An address in one form, where IPv4 looks the same in a socket of either family."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip), port


class Traffic:
    """Adds up the bytes of all connections between this process and other tasks.

    What a connection carries between the last look at it and its end is not counted.
    """

    def __init__(self, addresses: Sequence[str]):
        self._ports = {int(address.rsplit(":", 1)[1]) for address in addresses}
        self._open: dict[int, Counts] = {}  # by number of the socket
        self._ended: Counts = (0, 0)

    def count(self) -> Counts:
        """Bytes sent and received up to now."""
        now: dict[int, Counts] = {}
        for peer, connection in own_connections():
            with contextlib.suppress(OSError):  # it has ended by itself
                if peer[1] in self._ports or connection.getsockname()[1] in self._ports:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROOM)
                    if len(info) >= _OFFSET + _COUNTS.size:  # Linux 4.1 or later
                        number = os.fstat(connection.fileno()).st_ino
                        now[number] = _COUNTS.unpack_from(info, _OFFSET)
        for number, counts in self._open.items():
            if number not in now:
                self._ended = _sum(self._ended, counts)
        self._open = now
        total = self._ended
        for counts in now.values():
            total = _sum(total, counts)
        return total


def _sum(some: Counts, others: Counts) -> Counts:
    return some[0] + others[0], some[1] + others[1]
