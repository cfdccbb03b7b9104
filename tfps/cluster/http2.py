"""As much of HTTP/2 (RFC 9113) as it takes to ask a gRPC server a question, with plain sockets."""

import select
import socket
import struct
import time
from typing import ClassVar, NamedTuple, Self

from tfps.cluster.names import names

DATA, HEADERS, SETTINGS, PING = 0x0, 0x1, 0x4, 0x6
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
_RST_STREAM, _GOAWAY = 0x3, 0x7
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">BHBBI")
_LONGEST = 1 << 14  # payload, unless a client has asked for more


class NotHttp2Error(Exception):
    """What accepted the connection does not speak HTTP/2, or refuses the question."""


class Frame(NamedTuple):
    """One frame of a connection.

    Attributes:
        stream: 0 for the connection itself.
    """

    kind: int
    flags: int = 0
    stream: int = 0
    payload: bytes = b""


class Frames:
    """The frames in what a server has sent so far."""

    def __init__(self) -> None:
        self._received = b""

    def feed(self, data: bytes) -> None:
        """Takes what has come, cut anywhere."""
        self._received += data

    def next(self) -> Frame | None:
        """The next frame; None until all of it has come."""
        if len(self._received) < _HEAD.size:
            return None
        high, low, kind, flags, stream = _HEAD.unpack_from(self._received)
        size = high << 16 | low
        if size > _LONGEST or kind in (_RST_STREAM, _GOAWAY):
            raise NotHttp2Error
        end = _HEAD.size + size
        if len(self._received) < end:
            return None
        payload, self._received = self._received[_HEAD.size : end], self._received[end:]
        return Frame(kind, flags, stream & 0x7FFFFFFF, payload)


class Http2Connection:
    """A client's connection to a server; a context manager that closes it.

    Attributes:
        open_descriptors: File descriptors of all of this process's, and of whatever else only asks
            for a sign of life.
    """

    open_descriptors: ClassVar[set[int]] = set()

    def __init__(self, connected: socket.socket, deadline: float):
        """Sends nothing yet.

        Args:
            deadline: For everything that is received, on the monotonic clock.
        """
        self._socket = connected
        self._deadline = deadline
        self._frames = Frames()
        self.open_descriptors.add(connected.fileno())

    @classmethod
    def connect(cls, address: str, limit_seconds: float) -> Self:
        """Connects to a server, nothing more."""
        deadline = time.monotonic() + limit_seconds
        return cls(_connected(address, limit_seconds, deadline), deadline)

    def ask(self, *frames: Frame) -> None:
        """Sends the preface and the first frames, then takes the server's own preface."""
        try:
            self._socket.sendall(PREFACE + encoded(Frame(SETTINGS), *frames))
        except ConnectionError:
            raise NotHttp2Error from None
        if self.receive().kind != SETTINGS:
            raise NotHttp2Error

    def receive(self) -> Frame:
        """The next frame."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while (frame := self._frames.next()) is None:
            # Asked once even when the time is up: it may be this process that was stopped.
            if not poll.poll(1000 * max(0.0, self._deadline - time.monotonic())):
                raise TimeoutError
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise NotHttp2Error
            self._frames.feed(data)
        return frame

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.open_descriptors.discard(self._socket.fileno())
        self._socket.close()


def _connected(address: str, limit_seconds: float, deadline: float) -> socket.socket:
    """A connection to the first endpoint of the host that takes one."""
    endpoints = names.find(address, limit_seconds)
    for index, (family, place) in enumerate(endpoints):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            left = max(0.0, deadline - time.monotonic())
            # What is left is shared: one endpoint that drops packets leaves time for the next.
            connection.settimeout(max(0.001, left / (len(endpoints) - index)))
            connection.connect(place)
            connection.settimeout(limit_seconds)
        except OSError:
            connection.close()
            if index + 1 == len(endpoints):
                raise
            continue
        return connection
    raise AssertionError("a name that resolves has an endpoint")


def encoded(*frames: Frame) -> bytes:
    """Frames as they travel."""
    return b"".join(
        _HEAD.pack(size >> 16, size & 0xFFFF, frame.kind, frame.flags, frame.stream) + frame.payload
        for frame in frames
        for size in [len(frame.payload)]
    )
