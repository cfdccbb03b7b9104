"""Which task a TensorFlow server is, asked without joining its cluster."""

import dataclasses
import re
from collections.abc import Iterator

from tfps.cluster import http2
from tfps.cluster.http2 import Frame, Http2Connection, NotHttp2Error
from tfps.job_dir.task_name import TaskName

_STREAM = 1
_PATH = "/tensorflow.WorkerService/GetStatus"
_PREFIX = 5  # bytes before a gRPC message: compressed or not, length
_DEVICES, _NAME, _INCARNATION = 1, 1, 6  # fields of GetStatusResponse and of DeviceAttributes
_TASK = re.compile(rb"/job:(\w+)/replica:0/task:(\d+)/device:")
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


@dataclasses.dataclass(frozen=True)
class ServerIdentity:
    """What a server says of itself.

    Attributes:
        incarnation: A number of its own; the same task started again has another.
    """

    task: TaskName
    incarnation: int

    @classmethod
    def ask(cls, address: str, limit_seconds: float) -> "ServerIdentity | None":
        """Calls the server's `tensorflow.WorkerService/GetStatus`.

        Returns:
            None when no TensorFlow server answers in time.
        """
        try:
            with Http2Connection.connect(address, limit_seconds) as connection:
                connection.ask(*_request(address))
                return _identity(_message(connection))
        except (OSError, NotHttp2Error):
            return None


def _request(address: str) -> list[Frame]:
    """A gRPC call with an empty message."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _PATH,
        ":authority": address,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    # HPACK (RFC 7541, 6.2.2): neither indexed nor compressed.
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in headers.items()
    )
    return [
        Frame(http2.HEADERS, http2.END_HEADERS, _STREAM, block),
        Frame(http2.DATA, http2.END_STREAM, _STREAM, bytes(_PREFIX)),
    ]


def _message(connection: Http2Connection) -> bytes:
    """The answer's message, empty when the call failed."""
    data = b""
    while True:
        frame = connection.receive()
        if frame.stream == _STREAM:
            data += frame.payload if frame.kind == http2.DATA else b""
            if frame.flags & http2.END_STREAM and frame.kind in (http2.DATA, http2.HEADERS):
                return data[_PREFIX:]


def _identity(response: bytes) -> ServerIdentity | None:
    """The identity in a serialized `GetStatusResponse`: that of its first device."""
    for number, device in _fields(response):
        if number == _DEVICES:
            fields = dict(_fields(device))
            task = _TASK.match(fields.get(_NAME, b""))
            incarnation = int.from_bytes(fields.get(_INCARNATION, b""), "little")
            return task and ServerIdentity(TaskName(task[1].decode(), int(task[2])), incarnation)
    return None


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Field numbers and bytes of a message in Protocol Buffers' wire format."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        start = at
        if tag & 7 == _VARINT:
            _, at = _varint(message, at)
        elif tag & 7 == _EIGHT_BYTES:
            at += 8
        elif tag & 7 == _FOUR_BYTES:
            at += 4
        elif tag & 7 == _LENGTH:
            size, start = _varint(message, at)
            at = start + size
        else:
            raise NotHttp2Error
        yield tag >> 3, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    value = shift = 0
    while True:
        if at >= len(message):
            raise NotHttp2Error
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
