"""Events of a run as JSON, and back."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tfps.job_dir.report_fields import SaveCounts, StalenessCounts, WorkerShare
from tfps.job_dir.task_usage import TaskUsage
from tfps.monitoring.events import (
    CheckpointSaved,
    EpochTrained,
    Evaluated,
    Histogram,
    LeaseTimes,
    ParametersMeasured,
    RunBegan,
    RunEnded,
    RunEvent,
    Sampled,
    TableSize,
    TaskBack,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)

_KINDS: dict[str, type[RunEvent]] = {
    kind.kind: kind
    for kind in (
        RunBegan,
        TrainingBegan,
        Sampled,
        TasksMeasured,
        ParametersMeasured,
        CheckpointSaved,
        EpochTrained,
        Evaluated,
        TaskLost,
        TaskBack,
        RunEnded,
    )
}


def to_json(event: RunEvent) -> dict[str, Any]:
    """An event as JSON-ready data."""
    return {"kind": event.kind, **dataclasses.asdict(event)}


def from_json(data: Mapping[str, Any]) -> RunEvent | None:
    """The event that `to_json` gave; None for one of a kind that a later version has added."""
    kind = _KINDS.get(data["kind"])
    if kind is None:
        return None
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(
        **{
            name: _PARTS.get((kind, name), _as_it_is)(value)
            for name, value in data.items()
            if name in known
        }
    )


def _as_it_is(value: Any) -> Any:
    return value


def _histograms(data: Mapping[str, Any]) -> dict[str, Histogram]:
    return {
        name: Histogram(tuple(x["edges"]), tuple(x["counts"]), x["norm"], x["left_out"])
        for name, x in data.items()
    }


_PARTS: dict[tuple[type[RunEvent], str], Callable[[Any], Any]] = {
    (RunBegan, "overrides"): tuple,
    (RunBegan, "tables"): lambda tables: tuple(TableSize(**table) for table in tables),
    (Sampled, "workers"): lambda shares: tuple(WorkerShare(**share) for share in shares),
    (Sampled, "leases"): lambda x: x and LeaseTimes(tuple(x["counts"]), x["seconds"]),
    (TasksMeasured, "tasks"): lambda tasks: {k: TaskUsage(**usage) for k, usage in tasks.items()},
    (ParametersMeasured, "parameters"): _histograms,
    (ParametersMeasured, "gradients"): _histograms,
    (CheckpointSaved, "saves"): lambda saves: SaveCounts(**saves),
    (CheckpointSaved, "staleness"): lambda counts: StalenessCounts(**counts),
}
