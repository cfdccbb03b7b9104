"""What this process sends to other tasks and receives from them, as the kernel counts it."""

import contextlib
import os
import socket
import struct
from collections.abc import Sequence

from tfps.cluster.sockets import own_connections

# Of Linux's `struct tcp_info` (include/uapi/linux/tcp.h): tcpi_bytes_acked, tcpi_bytes_received.
_COUNTS, _OFFSET = struct.Struct("QQ"), 120
_ROOM = 256

Counts = tuple[int, int]  # bytes sent and received


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
