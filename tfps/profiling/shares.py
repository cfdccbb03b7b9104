"""How a task has spent its time, from its trace."""

import bisect
import dataclasses
import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tfps.profiling.scopes import COMPUTE, PULL, PUSH
from tfps.profiling.trace import Event, TaskTrace

_NEXT_BATCH = "IteratorGetNextOp::DoCompute"
_OPENING = ("MakeIterator::", "LoadBufferFromGCS ")
_LOOPS = ("while/", "while_")  # operations outside of a loop are those of the reader
_READERS = ("Iterator::", "ParallelMap", "Prefetch", "InstantiatedCapturedFunction", "MakeIterator")
_SAVE = ":SaveV2"
_AT_ONCE = 1e-4  # seconds between the arrival of a tensor and what it was waited for
_BETWEEN = 2e-4  # seconds between one operation and the next in which nothing is waited for

Span = tuple[float, float]


class Activity(enum.Enum):
    """What a task does; of several at once the first one counts."""

    COMPUTING = "computes"
    PUSHING = "pushes"  # on a ps: applies what was pushed
    PULLING = "pulls"  # on a ps: looks up what is pulled
    SAVING = "saves"
    OTHER = "other"
    READING = "reads"  # waits for the next batch, or for the storage


@dataclasses.dataclass(frozen=True)
class Operation:
    """What was done of one kind of operation."""

    name: str
    seconds: float  # of all threads
    count: int


@dataclasses.dataclass(frozen=True)
class TaskShares:
    """How a task has spent its time."""

    shares: Mapping[Activity, float]
    waiting: float
    waits: Mapping[str, float]
    steps: int
    seconds: float
    operations: Sequence[Operation]

    @property
    def seconds_of_step(self) -> float:
        """How long a step takes, reading and what lies between leases left out."""
        others = self.between_leases + self.shares[Activity.READING]
        return (1.0 - others) * self.seconds / max(self.steps, 1)

    @property
    def between_leases(self) -> float:
        """The part of the time in which a worker had no step to wait in."""
        return max(0.0, self.waiting - sum(self.waits.values()))

    @property
    def busy(self) -> float:
        """The part of the time in which it did something other than wait for its reader."""
        return sum(share for each, share in self.shares.items() if each is not Activity.READING)


def span_of(traces: Iterable[TaskTrace]) -> Span:
    """From the first to the last that was seen of some tasks."""
    threads = [thread for trace in traces for thread in (*trace.threads, *trace.devices)]
    begin = min(thread[0].begin for thread in threads)
    return begin, max(event.end for thread in threads for event in thread)


def shares_of(trace: TaskTrace, span: Span, senders: Mapping[str, str], most: int) -> TaskShares:
    seconds = max(span[1] - span[0], 1e-9)
    spans: dict[Activity, list[Span]] = defaultdict(list)
    for thread in trace.threads:
        for event in thread:
            if activity := activity_of(event.name):
                spans[activity].append((event.begin, event.end))
    spans[Activity.READING] += [(span[0], end) for end in trace.begun_before]
    spans[Activity.READING] += [(begin, span[1]) for begin in trace.ended_after]
    spans[Activity.COMPUTING] += [(e.begin, e.end) for stream in trace.devices for e in stream]
    taken: list[Span] = []
    shares = {}
    for activity in Activity:
        before = _length(taken)
        taken = _union([*taken, *_within(spans[activity], span)])
        shares[activity] = (_length(taken) - before) / seconds
    joined = _union(taken, _BETWEEN)
    shares[Activity.OTHER] += (_length(joined) - _length(taken)) / seconds
    waits = _waits(trace, _gaps(joined, span), senders)
    return TaskShares(
        shares=shares,
        waiting=1.0 - _length(joined) / seconds,
        waits={task: length / seconds for task, length in waits.items()},
        steps=sum(e.name == _NEXT_BATCH for thread in trace.threads for e in thread),
        seconds=seconds,
        operations=_heaviest(trace, most),
    )


def activity_of(name: str) -> Activity | None:
    """What an event is part of; None for what is outside the steps, or frames other events."""
    if name == _NEXT_BATCH or name.startswith(_OPENING):
        return Activity.READING
    for scope, activity in (
        (COMPUTE, Activity.COMPUTING),
        (PUSH, Activity.PUSHING),
        (PULL, Activity.PULLING),
    ):
        if scope in name:
            return activity
    if name.endswith(_SAVE):
        return Activity.SAVING
    is_of_loop = ":" in name and "::" not in name and name.startswith(_LOOPS)
    return Activity.OTHER if is_of_loop else None


def _waits(
    trace: TaskTrace, gaps: Iterable[Span], senders: Mapping[str, str]
) -> Mapping[str, float]:
    """How long a task waited for each other one in its steps: whose tensor has ended the wait."""
    times = [arrival.at for arrival in trace.arrivals]
    found: Counter[str] = Counter()
    for begin, end in gaps:
        place = bisect.bisect_right(times, end + _AT_ONCE) - 1
        if place >= 0 and times[place] >= begin:
            operation = trace.arrivals[place].operation
            sender = senders.get(operation)
            if sender and operation.startswith(_LOOPS):
                found[sender] += end - begin  # type: ignore[assignment]
    return found


def _heaviest(trace: TaskTrace, most: int) -> list[Operation]:
    seconds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for thread in (*trace.threads, *trace.devices):
        for event, own in _own_times(thread):
            if label := _label(event.name):
                seconds[label] += own  # type: ignore[assignment]
                counts[label] += 1
    return [Operation(name, float(took), counts[name]) for name, took in seconds.most_common(most)]


def _label(name: str) -> str:
    """An operation's type with what it is part of; empty for what is none."""
    if name.startswith(_READERS):
        return f"{name.rpartition('::')[2]} (reads)"
    operation, _, kind = name.rpartition(":")
    if not operation or "::" in name or not kind.isidentifier():
        return ""
    activity = activity_of(name)
    return f"{kind} ({activity.value})" if activity else kind


def _own_times(thread: Sequence[Event]) -> Iterator[tuple[Event, float]]:
    """The seconds of each event without those of the events within it."""
    open_events: list[tuple[Event, list[float]]] = []
    for event in thread:
        while open_events and open_events[-1][0].end <= event.begin:
            done, own = open_events.pop()
            yield done, max(0.0, own[0])
        if open_events:
            around, own = open_events[-1]
            own[0] -= min(event.end, around.end) - event.begin
        open_events.append((event, [event.end - event.begin]))
    for done, own in open_events:
        yield done, max(0.0, own[0])


def _within(spans: Iterable[Span], span: Span) -> Iterator[Span]:
    for begin, end in spans:
        if end > span[0] and begin < span[1]:
            yield max(begin, span[0]), min(end, span[1])


def _union(spans: Iterable[Span], between: float = 0.0) -> list[Span]:
    """Spans that do not overlap; those with less than `between` between them are one."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + between:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _gaps(joined: Sequence[Span], span: Span) -> Iterator[Span]:
    at = span[0]
    for begin, end in joined:
        if begin > at:
            yield at, begin
        at = end
    if span[1] > at:
        yield at, span[1]


def _length(joined: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in joined)
