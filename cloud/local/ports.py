"""Ports of this machine that nobody races for.

Asking the system for a free port and closing it again is a race: between the two moments anyone may
get it. Here each port is held, for as long as it is needed, by a socket that is bound with
SO_REUSEADDR but never listens. Linux then

- lets a server that sets SO_REUSEADDR (gRPC, so every TensorFlow server) bind the port and listen,
  again and again when it is restarted;
- gives the port to nobody who asks for any free port, neither by bind(0) nor by connect.

`tests/cloud/local/test_ports.py` proves both with a real TensorFlow server.
"""

import contextlib
import errno
import socket

from tfps.errors import UserError


class Ports:
    """Free ports of this machine, held until `close`; a context manager."""

    def __init__(self, count: int):
        self._held = contextlib.ExitStack()
        self.numbers: list[int] = []
        try:
            for _ in range(count):
                self.numbers.append(self._held.enter_context(_bound()).getsockname()[1])
        except OSError as error:
            self.close()
            raise UserError(
                f"cannot reserve {count} free ports ({error.strerror}); start fewer tasks, raise "
                "`ulimit -n`, or end what holds the ports of net.ipv4.ip_local_port_range"
            ) from error

    def close(self) -> None:
        """Gives the ports back."""
        self._held.close()

    def __enter__(self) -> "Ports":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _bound() -> socket.socket:
    """A socket bound to a free port on every address, of both families where there is IPv6."""
    try:
        return _bind(socket.AF_INET6, "::")
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
    return _bind(socket.AF_INET, "0.0.0.0")  # noqa: S104 - it never listens


def _bind(family: socket.AddressFamily, address: str) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind((address, 0))
    except OSError:
        held.close()
        raise
    return held
