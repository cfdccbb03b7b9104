"""As much of HTTP/2 (RFC 9113) as it takes to ask a gRPC server a question, with plain sockets."""

import select
import socket
import struct
import time
from typing import ClassVar, NamedTuple, Self

DATA, HEADERS, SETTINGS, PING = 0x0, 0x1, 0x4, 0x6
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
_RST_STREAM, _GOAWAY = 0x3, 0x7
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">BHBBI")
_LONGEST = 1 << 14  # payload, unless a client has asked for more


class NotHttp2Error(Exception):
    """What accepted the connection does not speak HTTP/2, or refuses the question."""


class Frame(NamedTuple):
    """One frame of a connection.

    Attributes:
        kind: Its type.
        flags: Its flags, whose meaning depends on the type.
        stream: 0 for the connection itself.
        payload: What it holds.
    """

    kind: int
    flags: int = 0
    stream: int = 0
    payload: bytes = b""


class Http2Connection:
    """A client's connection to a server; a context manager that closes it.

    Attributes:
        open_descriptors: File descriptors of all of this process's.
    """

    open_descriptors: ClassVar[set[int]] = set()

    def __init__(self, address: str, limit_seconds: float):
        """Connects, nothing more.

        Args:
            address: `host:port`.
            limit_seconds: For connecting and for everything that is received.

        Raises:
            OSError: If it cannot connect; a `socket.gaierror` if the host's name does not resolve.
        """
        self._deadline = time.monotonic() + limit_seconds
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host.strip("[]"), int(port)), limit_seconds)
        self.open_descriptors.add(self._socket.fileno())
        self._received = b""

    def ask(self, *frames: Frame) -> None:
        """Sends the preface and the first frames, then takes the server's own preface.

        Raises:
            TimeoutError: If that does not come in time.
            NotHttp2Error: If something else comes.
        """
        data = b"".join(map(_encoded, (Frame(SETTINGS), *frames)))
        try:
            self._socket.sendall(_PREFACE + data)
        except ConnectionError:
            raise NotHttp2Error from None
        if self.receive().kind != SETTINGS:
            raise NotHttp2Error

    def receive(self) -> Frame:
        """The next frame.

        Raises:
            TimeoutError: If it does not come in time.
            NotHttp2Error: If what comes is none, or the server refuses or ends the connection.
        """
        high, low, kind, flags, stream = _HEAD.unpack(self._take(_HEAD.size))
        size = high << 16 | low
        if size > _LONGEST or kind in (_RST_STREAM, _GOAWAY):
            raise NotHttp2Error
        return Frame(kind, flags, stream & 0x7FFFFFFF, self._take(size))

    def _take(self, size: int) -> bytes:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while len(self._received) < size:
            # Asked once even when the time is up: it may be this process that was stopped.
            if not poll.poll(1000 * max(0.0, self._deadline - time.monotonic())):
                raise TimeoutError
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise NotHttp2Error
            self._received += data
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.open_descriptors.discard(self._socket.fileno())
        self._socket.close()


def _encoded(frame: Frame) -> bytes:
    size = len(frame.payload)
    head = _HEAD.pack(size >> 16, size & 0xFFFF, frame.kind, frame.flags, frame.stream)
    return head + frame.payload
