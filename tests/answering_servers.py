"""Servers that answer signs of life and nothing else, many of them in one process.

    python -m tests.answering_servers COUNT

It prints their addresses, one per line, and serves until its input ends. They speak as much of
HTTP/2 as a gRPC server that is asked whether it is there: SETTINGS and PING are acknowledged.
"""

import contextlib
import selectors
import socket
import sys
from collections.abc import Sequence

from tfps.cluster.http2 import ACK, PING, PREFACE, SETTINGS, Frame, Frames, NotHttp2Error, encoded


class AnsweringServers:
    """Listening sockets of the loopback interface and their connections, in one loop.

    Attributes:
        addresses: `host:port` of each.
    """

    def __init__(self, count: int):
        """Listens.

        Args:
            count: How many servers.
        """
        self._selector = selectors.DefaultSelector()
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self.addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in listeners]

    def run(self, end: int) -> None:
        """Serves until a file descriptor can be read; then closes everything."""
        self._selector.register(end, selectors.EVENT_READ)
        try:
            self._serve(end)
        finally:
            for key in list(self._selector.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()
            self._selector.close()

    def _serve(self, end: int) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == end:
                    return
                if key.data is None:
                    assert isinstance(key.fileobj, socket.socket)
                    connection = key.fileobj.accept()[0]
                    connection.setblocking(False)
                    self._selector.register(connection, selectors.EVENT_READ, _Client(connection))
                elif not key.data.serve():
                    self._selector.unregister(key.fileobj)
                    key.data.connection.close()


class _Client:
    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._frames = Frames()
        self._preface = b""

    def serve(self) -> bool:
        """Answers what has come; returns whether the connection goes on."""
        with contextlib.suppress(OSError, NotHttp2Error):
            data = self.connection.recv(1 << 16)
            if not data:
                return False
            if len(self._preface) < len(PREFACE):
                missing = len(PREFACE) - len(self._preface)
                self._preface, data = self._preface + data[:missing], data[missing:]
                if self._preface == PREFACE:
                    self.connection.send(encoded(Frame(SETTINGS)))
            self._frames.feed(data)
            while frame := self._frames.next():
                if frame.kind in (SETTINGS, PING) and not frame.flags & ACK:
                    self.connection.send(encoded(Frame(frame.kind, ACK, 0, frame.payload)))
            return True
        return False


def main(argv: Sequence[str]) -> None:
    """Serves.

    Args:
        argv: Program name, and how many servers.
    """
    servers = AnsweringServers(int(argv[1]))
    print("\n".join(servers.addresses), flush=True)
    servers.run(sys.stdin.fileno())


if __name__ == "__main__":
    main(sys.argv)
