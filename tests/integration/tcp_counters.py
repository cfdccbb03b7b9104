"""What the kernel counts for servers: the bytes of each of their connections, their memory."""

import socket
import struct
from collections.abc import Collection, Iterator

import psutil

# From linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and linux/tcp.h.
_NETLINK_SOCK_DIAG = 4
_REQUEST_AND_DUMP = 0x301
_SOCK_DIAG_BY_FAMILY = 20
_ERROR, _DONE = 2, 3
_ESTABLISHED = 1 << 1
_INFO = 2  # the attribute that holds a struct tcp_info
_MESSAGE, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_SOCKET_SIZE = 72  # of struct inet_diag_msg
_ACKED_AND_RECEIVED = 120  # offset of two uint64 in struct tcp_info


def bytes_to(servers: Collection[int]) -> int:
    """Payload carried so far, both ways, by other processes' open connections to local ports.

    Args:
        servers: The ports that servers listen on.
    """
    own = {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.raddr}
    return sum(
        carried for port, peer, carried in _connections() if peer in servers and port not in own
    )


def resident_peak(server: int) -> int:
    """The most memory, in bytes, that the process listening on a local port has ever held."""
    [pid] = {c.pid for c in psutil.net_connections("tcp") if c.laddr.port == server and not c.raddr}
    with open(f"/proc/{pid}/status") as file:
        [line] = [line for line in file if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _connections() -> Iterator[tuple[int, int, int]]:
    """Local port, remote port and bytes acknowledged or received, for both ends of each."""
    for family in (socket.AF_INET, socket.AF_INET6):
        request = struct.pack(
            "=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED
        ) + bytes(48)
        header = _MESSAGE.pack(
            _MESSAGE.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_AND_DUMP, 1, 0
        )
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.send(header + request)
            for message in _messages(netlink):
                port, peer = struct.unpack_from("!HH", message, 4)
                yield port, peer, _carried(message)


def _messages(netlink: socket.socket) -> Iterator[bytes]:
    while True:
        data = netlink.recv(1 << 20)
        while data:
            length, kind, *_ = _MESSAGE.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError("the kernel does not tell of its sockets")
            yield data[_MESSAGE.size : length]
            data = data[(length + 3) & ~3 :]


def _carried(message: bytes) -> int:
    place = _SOCKET_SIZE
    while place < len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, place)
        if kind == _INFO:
            start = place + _ATTRIBUTE.size + _ACKED_AND_RECEIVED
            return sum(struct.unpack_from("=QQ", message, start))
        place += (length + 3) & ~3
    raise OSError("the kernel does not count the bytes of its sockets")
