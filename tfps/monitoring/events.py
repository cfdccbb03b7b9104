"""What happens in a run, for those who watch it."""

import bisect
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from tfps.job_dir.report import SaveCounts, StalenessCounts, WorkerShare
from tfps.job_dir.task_files import TaskUsage

LEASE_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # bounds of `LeaseTimes`


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEvent:
    """Something that happened."""

    kind: ClassVar[str]
    # Whether to write it soon: nobody else knows it if the chief is lost.
    is_urgent: ClassVar[bool] = False
    at: float  # seconds since 1970


@dataclasses.dataclass(frozen=True)
class TableSize:
    """A table of a model."""

    name: str
    rows: int
    dim: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class LeaseTimes:
    """How long the closures of leases ran."""

    # how many took at most as long as each of `LEASE_SECONDS`, but longer than the one before it;
    # the last is how many took longer than all
    counts: tuple[int, ...] = (0,) * (1 + len(LEASE_SECONDS))
    seconds: float = 0.0

    def with_another(self, seconds: float) -> "LeaseTimes":
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
    """The chief is connected, and training begins, or resumes from a checkpoint."""

    kind = "training"
    is_urgent = True
    checkpoint: str | None  # its path; None for parameters that are new to the job
    epoch: int  # the epoch that is trained next, from 0
    examples: int  # trained up to the checkpoint: what was trained after it is lost
    steps: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampled(RunEvent):
    """How far the training is; records are counted since the job began."""

    kind = "sample"
    epoch: int  # being trained, from 0
    examples: int  # those of unfinished leases included
    steps: int
    # mean over the records since the last sample of the loss of their batch; None without records
    loss: float | None
    examples_per_second: float
    # trained in by this process, without what lies between epochs; 0 in histories of before
    training_seconds: float = 0.0
    repeated: int = 0  # records that may have been trained twice
    bad: int = 0
    workers: tuple[WorkerShare, ...] = ()  # by index, since the chief connected
    leases: LeaseTimes | None = None  # since then; None in histories of before
    # of the leases that have ended since the last sample, as predicted before they were learnt
    judged: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedMeasured(RunEvent):
    """A run that chooses its size has measured one, and has chosen the next."""

    kind = "speed"
    is_urgent = True
    workers: int  # without one next to the chief
    examples_per_second: float
    chosen: int
    is_other: bool = False  # than it was: what was measured of other sizes holds no more
    ps: int = 0  # 0 also in histories of before, as the next
    chosen_ps: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TasksMeasured(RunEvent):
    """What the tasks of the job take of their machines."""

    kind = "tasks"
    tasks: Mapping[str, TaskUsage]  # by name, of those that have reported since the last time


@dataclasses.dataclass(frozen=True)
class Histogram:
    """How some values are spread."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    norm: float
    left_out: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParametersMeasured(RunEvent):
    """What the parameters are, and what a batch would change of them."""

    kind = "parameters"
    steps: int
    epoch: int
    # by path of a dense parameter its values; by name of a table those of some rows
    parameters: Mapping[str, Histogram]
    # of a batch; of a table, the norms of the gradients of the rows that the batch asks for
    gradients: Mapping[str, Histogram]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointSaved(RunEvent):
    """A checkpoint is committed."""

    kind = "checkpoint"
    name: str
    examples: int
    steps: int
    saves: SaveCounts  # since the chief connected
    staleness: StalenessCounts = dataclasses.field(default_factory=StalenessCounts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochTrained(RunEvent):
    """An epoch is trained, and in a checkpoint: no run goes back before its end."""

    kind = "epoch"
    epoch: int  # from 0
    steps: int
    loss: float
    learning_rate: float | None  # of the dense parameters at its end, None where it is not known
    # without the time of evaluations and checkpoints; None unless this chief has trained all of it
    steps_per_second: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated(RunEvent):
    """A checkpoint is evaluated."""

    kind = "evaluation"
    epoch: int
    steps: int
    metrics: Mapping[str, float]
    has_ended_epoch: bool  # whether it is the checkpoint at an epoch's end


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


_KINDS = {event.kind: event for event in RunEvent.__subclasses__()}


def to_json(event: RunEvent) -> dict[str, Any]:
    return {"kind": event.kind, **dataclasses.asdict(event)}


def from_json(data: Mapping[str, Any]) -> RunEvent | None:
    """The event that `to_json` gave; None for one of a kind that a later version has added."""
    kind = _KINDS.get(data["kind"])
    return msgspec.convert(data, kind) if kind else None
