"""What TensorFlow's profiler has seen of a task, read from the file that it leaves."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

# Nothing public reads a trace: the messages are those that TensorFlow's own profiler writes with.
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfps.errors import UserError
from tfps.storage import files

_HOST, _DEVICES = "/host:CPU", "/device:"
_ARRIVED = "ExecutorState::ProcessAsync::Done"
_NAME, _KIND, _RECEIVE = "name", "kernel_type", "_Recv"
_SEND = ":_Send"
_SECOND = 1e9  # nanoseconds
_PICOSECOND = 1e-12


class Event(NamedTuple):
    """Something that a thread, or a device, did.

    Attributes:
        begin: When it began, seconds since 1970.
        end: When it ended.
        name: What it was: of an operation `NAME:TYPE`.
    """

    begin: float
    end: float
    name: str


class Arrival(NamedTuple):
    """A tensor came from another task.

    Attributes:
        at: When, seconds since 1970.
        operation: The operation that made it, there.
    """

    at: float
    operation: str


@dataclasses.dataclass(frozen=True)
class TaskTrace:
    """What one task did for a while.

    Attributes:
        threads: By thread, what it did, in the order in which it was begun; a thread may do
            something within something else.
        devices: By stream of an accelerator, what it did.
        arrivals: In order.
        sent: The operations whose results were sent to other tasks.
    """

    threads: list[list[Event]]
    devices: list[list[Event]]
    arrivals: list[Arrival]
    sent: frozenset[str]


def read(path: str) -> TaskTrace:
    """Reads the trace of a task.

    Args:
        path: The `.xplane.pb` file, local or `gs://`.

    Raises:
        UserError: If it is damaged.
        StorageError: If it cannot be read.
    """
    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(files.read(path))
    except DecodeError:
        raise UserError(f"{path} is no trace, or is damaged; trace the job again") from None
    host = [plane for plane in space.planes if plane.name == _HOST]
    threads = [thread for plane in host for thread in _lines(plane)]
    return TaskTrace(
        threads=threads,
        devices=[
            stream
            for plane in space.planes
            if plane.name.startswith(_DEVICES)
            for stream in _lines(plane)
        ],
        arrivals=sorted(arrival for plane in host for arrival in _arrivals(plane)),
        sent=frozenset(
            _source(event.name.removesuffix(_SEND))
            for thread in threads
            for event in thread
            if event.name.endswith(_SEND)
        ),
    )


def _lines(plane: Any) -> Iterator[list[Event]]:
    names = {number: each.name for number, each in plane.event_metadata.items()}
    for line in plane.lines:
        base = line.timestamp_ns / _SECOND
        events = []
        for event in line.events:
            begin = base + event.offset_ps * _PICOSECOND
            length = event.duration_ps * _PICOSECOND
            events.append(Event(begin, begin + length, names[event.metadata_id]))
        if events:
            yield sorted(events, key=lambda event: (event.begin, -event.end))


def _arrivals(plane: Any) -> Iterator[Arrival]:
    names = {number: each.name for number, each in plane.event_metadata.items()}
    fields = {number: each.name for number, each in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            if names[event.metadata_id] != _ARRIVED:
                continue
            told = dict(_texts(event, fields))
            if told.get(_KIND) == _RECEIVE:
                at = line.timestamp_ns / _SECOND + event.offset_ps * _PICOSECOND
                yield Arrival(at, _source(told.get(_NAME, "")))


def _texts(event: Any, fields: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for stat in event.stats:
        text = stat.str_value or (fields.get(stat.ref_value, "") if stat.ref_value else "")
        if text:
            yield fields[stat.metadata_id], text


def _source(name: str) -> str:
    """The operation whose result a node sends or receives, of the node's name `OPERATION/_7`."""
    return name.rpartition("/_")[0] or name
