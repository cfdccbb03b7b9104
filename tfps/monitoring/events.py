"""What happens in a run, as those who watch it are told."""

import bisect
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from tfps.job_dir.report import SaveCounts, StalenessCounts, WorkerShare
from tfps.job_dir.task_files import TaskUsage

LEASE_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # bounds of what is told of leases


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEvent:
    """Something that happened.

    Attributes:
        is_urgent: Whether it is to be written soon: nobody can tell it again if the chief is lost.
        at: When, seconds since 1970.
    """

    kind: ClassVar[str]
    is_urgent: ClassVar[bool] = False
    at: float


@dataclasses.dataclass(frozen=True)
class TableSize:
    """A table of a model."""

    name: str
    rows: int
    dim: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class LeaseTimes:
    """How long the closures of leases ran.

    Attributes:
        counts: How many took at most as long as each of `LEASE_SECONDS`, but longer than the one
            before it, and in the end how many took longer than all.
    """

    counts: tuple[int, ...] = (0,) * (1 + len(LEASE_SECONDS))
    seconds: float = 0.0

    def with_another(self, seconds: float) -> "LeaseTimes":
        """The same with another one that took so long."""
        place = bisect.bisect_left(LEASE_SECONDS, seconds)
        counts = (count + (at == place) for at, count in enumerate(self.counts))
        return LeaseTimes(tuple(counts), self.seconds + seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunBegan(RunEvent):
    """A chief has begun to work on the job."""

    kind = "began"
    config: str
    mode: str
    workers: int
    ps: int
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    tables: tuple[TableSize, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingBegan(RunEvent):
    """The chief is connected, and training begins, or goes on from a checkpoint.

    Attributes:
        checkpoint: Path of the checkpoint; None for parameters that are new to the job.
        epoch: The epoch that is trained next, from 0.
        examples: Records trained up to the checkpoint: what was trained after it is lost.
    """

    kind = "training"
    is_urgent = True
    checkpoint: str | None
    epoch: int
    examples: int
    steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampled(RunEvent):
    """How far the training is.

    Attributes:
        epoch: The epoch being trained, from 0.
        examples: Records trained since the job began, those of unfinished leases included.
        loss: Mean over the records trained since the last sample of the loss of their batch, None
            where there are none.
        repeated: Records that may have been trained twice, since the job began.
        workers: By index, what each worker did since the chief connected.
        leases: How long leases took since then; None in histories of before.
    """

    kind = "sample"
    epoch: int
    examples: int
    steps: int
    loss: float | None
    examples_per_second: float
    repeated: int = 0
    bad: int = 0
    workers: tuple[WorkerShare, ...] = ()
    leases: LeaseTimes | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TasksMeasured(RunEvent):
    """What the tasks of the job take of their machines.

    Attributes:
        tasks: By name of the task, of those that have reported since the last time.
    """

    kind = "tasks"
    tasks: Mapping[str, TaskUsage]


@dataclasses.dataclass(frozen=True)
class Histogram:
    """How some values are spread."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    norm: float
    left_out: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParametersMeasured(RunEvent):
    """What the parameters are, and what a batch would change of them.

    Attributes:
        parameters: By path of a dense parameter its values; by name of a table, those of some rows.
        gradients: Of a batch, by path of a dense parameter; by name of a table, the norms of the
            gradients of the rows that the batch asks for.
    """

    kind = "parameters"
    steps: int
    epoch: int
    parameters: Mapping[str, Histogram]
    gradients: Mapping[str, Histogram]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointSaved(RunEvent):
    """A checkpoint is committed.

    Attributes:
        saves: All saves since the chief connected, and what the last one took.
    """

    kind = "checkpoint"
    name: str
    examples: int
    steps: int
    saves: SaveCounts
    staleness: StalenessCounts = dataclasses.field(default_factory=StalenessCounts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochTrained(RunEvent):
    """An epoch is trained, and in a checkpoint: no run goes back before its end.

    Attributes:
        epoch: The epoch, from 0.
        learning_rate: That of the dense parameters at its end, None where it is not known.
        steps_per_second: Its updates by the time that it was trained, evaluations and checkpoints
            left out; None for an epoch of which this chief has not trained all.
    """

    kind = "epoch"
    epoch: int
    steps: int
    loss: float
    learning_rate: float | None
    steps_per_second: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated(RunEvent):
    """A checkpoint is evaluated.

    Attributes:
        has_ended_epoch: Whether it is the checkpoint at an epoch's end.
    """

    kind = "evaluation"
    epoch: int
    steps: int
    metrics: Mapping[str, float]
    has_ended_epoch: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskLost(RunEvent):
    """A task was lost."""

    kind = "lost"
    is_urgent = True
    task: str
    what: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskBack(RunEvent):
    """A task that was lost answers again."""

    kind = "back"
    is_urgent = True
    task: str
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEnded(RunEvent):
    """The chief's run has ended."""

    kind = "ended"
    status: str
    error: str | None = None


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
    return msgspec.convert(data, kind) if kind else None
