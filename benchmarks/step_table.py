"""The parts of a step's CPU time, of what was seen of a job's tasks."""

import re
from collections import defaultdict
from collections.abc import Mapping

from benchmarks.step_watch import ONE_PROCESS, Taken
from benchmarks.threads import Thread
from tfps.profiling.shares import Activity, own_seconds
from tfps.profiling.trace import TaskTrace

# What an operation of a step is part of, by the end of its label.
_PARTS = {
    Activity.PULLING: "pull: ids, rows, dense parameters",
    Activity.COMPUTING: "compute: model and its gradient",
    Activity.PUSHING: "push: gradients, updates",
    Activity.OTHER: "progress, staleness, the rest of the loop",
}
_READS, _FUNCTIONS = "reading: records, shuffling, parsing", "functions: ids, updates under a mutex"
_BETWEEN = "between operations: scheduling, waking, unexplained"
_EVENTS, _QUEUES = "network: gRPC's event engine", "network: completion queues"
_OTHERS, _ENDED = "other threads", "threads that ended unseen"
ALL, WOKEN = "all", "times that a thread was woken"
ROWS = (
    *(_READS, *_PARTS.values(), _FUNCTIONS, _BETWEEN, _EVENTS, _QUEUES, _OTHERS, _ENDED, ALL),
    WOKEN,
)
COLUMNS = {"worker": "worker", "ps": "ps", ONE_PROCESS: "one process"}
_NEXT_BATCH = "IteratorGetNextOp::DoCompute"
_NAME = 15  # characters that Linux keeps of a thread's name
_LEAST = 1e-9  # ms, where what was traced took no time
_LABEL = re.compile(r"\((\w+)\)$")


def columns(taken: Mapping[str, Taken], steps: float) -> dict[str, dict[str, float]]:
    """Ms per step, and wakings per step, by column and row of the table.

    Args:
        taken: By task, what was seen of it.
        steps: How many steps all workers made in the window.
    """
    traced_steps = sum(
        event.name == _NEXT_BATCH
        for each in taken.values()
        if each.trace
        for thread in each.trace.threads
        for event in thread
    )
    found: dict[str, dict[str, float]] = {}
    for task, each in taken.items():
        if each.trace:
            column = next(title for name, title in COLUMNS.items() if task.startswith(name))
            parts = _parts(each, each.trace, steps, max(traced_steps, 1))
            _add(found.setdefault(column, defaultdict(float)), parts)
    return {column: dict(parts) for column, parts in found.items()}


def lines(found: Mapping[str, Mapping[str, float]]) -> str:
    """The table, for people."""
    titles = [title for title in COLUMNS.values() if title in found]
    width = max(map(len, ROWS))
    told = [" " * width + "".join(f"{title:>13}" for title in titles)]
    for row in ROWS:
        cells = "".join(f"{found[title].get(row, 0.0):13.2f}" for title in titles)
        told.append(f"{row:<{width}}{cells}")
    return "\n".join(told)


def _parts(taken: Taken, trace: TaskTrace, steps: float, traced_steps: int) -> dict[str, float]:
    """Of one task: ms per step by row."""
    operations: dict[str, dict[str, float]] = {}
    for name, thread in zip(trace.thread_names, trace.threads, strict=True):
        of_name = operations.setdefault(name.partition("/")[0][:_NAME], defaultdict(float))
        for label, seconds in own_seconds(thread):
            of_name[_part(label)] += 1000 * seconds / traced_steps
    found: dict[str, float] = defaultdict(float)
    for took in taken.threads.values():
        _add(found, _of_threads(took, 1000 * took.cpu_seconds / steps, operations))
    whole = 1000 * taken.cpu_seconds / steps
    found[_ENDED] = whole - sum(found.values())
    found[ALL] = whole
    found[WOKEN] = sum(each.waits for each in taken.threads.values()) / steps
    return found


def _add(sums: dict[str, float], more: Mapping[str, float]) -> None:
    for row, value in more.items():
        sums[row] += value


def _of_threads(
    thread: Thread, milliseconds: float, operations: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """What all threads of one name took, by row.

    An operation may have waited, or its thread for a core: all of a name's together are taken for
    no more than what its threads took.
    """
    if thread.name.startswith("event_engine"):
        return {_EVENTS: milliseconds}
    traced = operations.get(thread.name)
    if not traced:
        # The threads of TensorFlow's gRPC services have no name: they keep the process's.
        return {_QUEUES if thread.name.endswith(".py") else _OTHERS: milliseconds}
    scale = min(1.0, milliseconds / max(sum(traced.values()), _LEAST))
    found = {part: scale * each for part, each in traced.items()}
    rest = milliseconds - sum(found.values())
    return {**found, _BETWEEN: found.get(_BETWEEN, 0.0) + rest}


def _part(label: str) -> str:
    """The row of an operation."""
    match = _LABEL.search(label)
    if not match:
        return _FUNCTIONS
    if match[1] == "reads":
        return _READS
    return _PARTS.get(Activity(match[1]), _FUNCTIONS)
