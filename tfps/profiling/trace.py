"""What TensorFlow's profiler has seen of a task, read from the file that it leaves."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

# Nothing public reads a trace: the messages are those that TensorFlow's own profiler writes with.
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName
from tfps.storage import files

_HOST, _DEVICES = "/host:CPU", "/device:"
_BEGUN, _DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
_NAME, _KIND, _RECEIVE, _NEXT = "name", "kernel_type", "_Recv", "IteratorGetNext"
_SEND, _KEY = ":_Send", "key"
# Of a key "SOURCE DEVICE;NUMBER;TARGET DEVICE;…".
_TARGET = re.compile(r"^[^;]*;[^;]*;/job:(\w+)/replica:0/task:(\d+)/")
_SECOND = 1e9  # nanoseconds
_PICOSECOND = 1e-12


class Event(NamedTuple):
    """Something that a thread, or a device, did."""

    begin: float  # seconds since 1970
    end: float
    name: str


class Arrival(NamedTuple):
    """A tensor came from another task."""

    at: float  # seconds since 1970
    operation: str


class Sending(NamedTuple):
    """A tensor was sent to another task."""

    at: float  # seconds since 1970
    operation: str
    task: str


@dataclasses.dataclass(frozen=True)
class TaskTrace:
    """What one task did for a while."""

    # in the order in which it was begun; a thread may do something within something else
    threads: list[list[Event]]
    devices: list[list[Event]]
    arrivals: list[Arrival]
    sendings: list[Sending]
    # when batches came that were asked for before the trace began
    begun_before: list[float] = dataclasses.field(default_factory=list)
    # when batches were asked for that came after its end
    ended_after: list[float] = dataclasses.field(default_factory=list)


def read(path: str) -> TaskTrace:
    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(files.read(path))
    except DecodeError:
        raise UserError(f"{path} is no trace, or is damaged; trace the job again") from None
    host = [plane for plane in space.planes if plane.name == _HOST]
    steps = [step for plane in host for step in _asynchronous(plane)]
    begun_before, ended_after = _cut_off([step for step in steps if step.kind == _NEXT])
    return TaskTrace(
        threads=[events for plane in host for events in _lines(plane)],
        devices=[
            events
            for plane in space.planes
            if plane.name.startswith(_DEVICES)
            for events in _lines(plane)
        ],
        arrivals=sorted(
            Arrival(step.at, _source(step.name))
            for step in steps
            if step.kind == _RECEIVE and step.is_done
        ),
        sendings=sorted(sending for plane in host for sending in _sendings(plane)),
        begun_before=begun_before,
        ended_after=ended_after,
    )


class _Asynchronous(NamedTuple):
    """The begin or the end of an operation for which no thread waits."""

    at: float
    name: str
    kind: str
    is_done: bool


def _lines(plane: Any) -> Iterator[list[Event]]:
    """The events of each line that has some."""
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


def _asynchronous(plane: Any) -> Iterator[_Asynchronous]:
    for at, name, texts in _events(plane, lambda name: name in (_BEGUN, _DONE)):
        yield _Asynchronous(at, texts.get(_NAME, ""), texts.get(_KIND, ""), name == _DONE)


def _cut_off(steps: list[_Asynchronous]) -> tuple[list[float], list[float]]:
    """Ends without a begin, and begins without an end."""
    begun: dict[str, float] = {}
    ends = []
    for step in sorted(steps):
        if not step.is_done:
            begun[step.name] = step.at
        elif begun.pop(step.name, None) is None:
            ends.append(step.at)
    return ends, list(begun.values())


def _sendings(plane: Any) -> Iterator[Sending]:
    for at, name, texts in _events(plane, lambda name: name.endswith(_SEND)):
        if target := _TARGET.search(texts.get(_KEY, "")):
            task = str(TaskName(target[1], int(target[2])))
            yield Sending(at, _source(name.removesuffix(_SEND)), task)


def _events(
    plane: Any, is_meant: Callable[[str], bool]
) -> Iterator[tuple[float, str, dict[str, str]]]:
    """Begin and name of events that are chosen by their names, and their texts."""
    names = {number: each.name for number, each in plane.event_metadata.items()}
    fields = {number: each.name for number, each in plane.stat_metadata.items()}
    meant = {number for number, name in names.items() if is_meant(name)}
    for line in plane.lines:
        for event in line.events:
            if event.metadata_id in meant:
                at = line.timestamp_ns / _SECOND + event.offset_ps * _PICOSECOND
                yield at, names[event.metadata_id], dict(_texts(event, fields))


def _texts(event: Any, fields: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for stat in event.stats:
        text = stat.str_value or (fields.get(stat.ref_value, "") if stat.ref_value else "")
        if text:
            yield fields[stat.metadata_id], text


def _source(name: str) -> str:
    """The operation whose result a node sends or receives, of the node's name `OPERATION/_7`."""
    return name.rpartition("/_")[0] or name
