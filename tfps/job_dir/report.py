"""`JOB_DIR/report.json`: what a run did, for whoever follows it."""

import contextlib
import dataclasses
import functools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.storage import files

FORMAT = 2
RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed", "interrupted"
OUTPUT_LOSS = "_loss"  # ends the name of a metric that is the loss of one of several outputs
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TaskCounts:
    """How many tasks there are next to the chief; none in local mode."""

    workers: int = 0
    ps: int = 0

    def __str__(self) -> str:
        if self.ps:
            return f"{self.workers} workers, {self.ps} ps"
        return f"{1 + self.workers} replicas" if self.workers else "one process"

    def training_task(self, index: int) -> str:
        """The task of which a report's workers have this index: without ps the chief trains too."""
        if not self.workers:
            return "this process"
        if self.ps:
            return f"worker {index}"
        return f"worker {index - 1}" if index else "chief"


@dataclasses.dataclass(frozen=True)
class Versions:
    """What the chief runs with."""

    tfps: str
    tensorflow: str
    keras: str
    python: str


@dataclasses.dataclass(frozen=True)
class ExampleCounts:
    """Records of the training data, by what became of them."""

    per_epoch: int
    trained: int = 0
    skipped: int = 0
    repeated: int = 0
    bad: int = 0


@dataclasses.dataclass(frozen=True)
class ReportedBadRecord:
    """A bad record: where it begins, and what is lost with it."""

    shard: str
    record: int
    byte: int
    records: int
    reason: str


@dataclasses.dataclass(frozen=True)
class WorkerShare:
    """What one worker did, or several together."""

    leases: int = 0
    records: int = 0
    seconds: float = 0.0
    idle_seconds: float = 0.0

    @property
    def idle_share(self) -> float | None:
        """The part of its time in which it waited for leases; None where no time has passed."""
        time = self.seconds + self.idle_seconds
        return self.idle_seconds / time if time > 0 else None

    def plus(self, other: "WorkerShare", sign: int = 1) -> "WorkerShare":
        return WorkerShare(
            leases=self.leases + sign * other.leases,
            records=self.records + sign * other.records,
            seconds=self.seconds + sign * other.seconds,
            idle_seconds=self.idle_seconds + sign * other.idle_seconds,
        )

    def since(self, before: "WorkerShare") -> "WorkerShare":
        return self.plus(before, -1)

    @staticmethod
    def together(shares: "Iterable[WorkerShare]") -> "WorkerShare":
        return functools.reduce(WorkerShare.plus, shares, WorkerShare())


@dataclasses.dataclass(frozen=True)
class StalenessCounts:
    """How stale the updates were."""

    mean: float = 0.0
    histogram: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class RoundCounts:
    """What became of the rounds of mode `sync`."""

    closed: int
    dropped: int


@dataclasses.dataclass(frozen=True)
class LossScaleState:
    """How the loss is scaled, and how often that was too much."""

    scale: float
    skipped_steps: int


@dataclasses.dataclass(frozen=True)
class EvaluationRow:
    """One evaluation; in the file the metrics stand beside the other fields."""

    epoch: int
    steps: int
    metrics: Mapping[str, float]

    @staticmethod
    def nested(data: Mapping[str, Any]) -> dict[str, Any]:
        """What `to_json` gave, with the metrics in a field of their own."""
        metrics = dict(data)
        return {name: metrics.pop(name) for name in ("epoch", "steps")} | {"metrics": metrics}

    def to_json(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "steps": self.steps, **self.metrics}


@dataclasses.dataclass(frozen=True)
class FollowedDatasets:
    """What a run that follows datasets has taken of them; `epochs` counts those trained."""

    next: str  # what is taken next
    not_taken: int = 0  # since this process began
    notes: list[str] = dataclasses.field(default_factory=list)  # the last of these, with reasons


@dataclasses.dataclass(frozen=True)
class BestEvaluation:
    """The best of some evaluations, and the name of the metric by which it is the best."""

    metric: str
    evaluation: EvaluationRow

    @staticmethod
    def nested(data: Mapping[str, Any]) -> dict[str, Any]:
        """What `to_json` gave, with the evaluation in a field of its own."""
        row = dict(data)
        return {"metric": row.pop("metric"), "evaluation": EvaluationRow.nested(row)}

    def to_json(self) -> dict[str, Any]:
        return {"metric": self.metric, **self.evaluation.to_json()}


@dataclasses.dataclass(frozen=True)
class ReportedFailure:
    """One loss of a task."""

    task: str
    what: str
    when: float
    back_after: float | None = None


@dataclasses.dataclass(frozen=True)
class ReportedRecovery:
    """One recovery from lost ps or replicas, and what it cost."""

    what: str
    when: float
    records: int = 0
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class KeyTotals:
    """What has become of the keys of a table without a vocabulary, since this process began."""

    rows: int = 0
    bytes: int = 0
    admitted: int = 0
    evicted: int = 0
    forgotten: int = 0  # rows of keys that did not occur any more, or whose norm was small
    refused: int = 0
    dropped: int = 0


@dataclasses.dataclass(frozen=True)
class SaveCounts:
    """The saves of a run, and what they took."""

    saved: int = 0
    increments: int = 0
    bytes: int = 0
    stopped_seconds: float = 0.0
    write_seconds: float = 0.0
    touched_rows: int = 0
    touched_by_table: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What a run did so far; the file has the same fields in the same order."""

    format: int = FORMAT
    status: str = RUNNING
    mode: str
    config: str
    cluster: TaskCounts
    versions: Versions
    batch_size: int
    negatives: int = 0
    examples: ExampleCounts
    bad_records: list[ReportedBadRecord] = dataclasses.field(default_factory=list)
    workers: list[WorkerShare] = dataclasses.field(default_factory=list)
    epochs: int = 0
    followed: FollowedDatasets | None = None
    steps: int = 0
    staleness: StalenessCounts = dataclasses.field(default_factory=StalenessCounts)
    rounds: RoundCounts | None = None
    steps_per_lease: int = 0
    pipeline_depth: int = 0
    sync_every: int | None = None
    loss_scale: LossScaleState | None = None
    keys: Mapping[str, KeyTotals] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    examples_per_second: float = 0.0
    examples_per_second_with_pauses: float = 0.0
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    progressive: Mapping[str, float] = dataclasses.field(default_factory=dict)
    evaluations: list[EvaluationRow] = dataclasses.field(default_factory=list)
    best_evaluation: BestEvaluation | None = None
    stopped_early: str | None = None
    best_auc: float | None = None
    failures: list[ReportedFailure] = dataclasses.field(default_factory=list)
    failures_by_job: Mapping[str, int] = dataclasses.field(default_factory=dict)
    recoveries: list[ReportedRecovery] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)
    storage_retries: int = 0
    init_from: str | None = None
    resumed_from: str | None = None
    passed_over: Mapping[str, str] = dataclasses.field(default_factory=dict)
    restore_seconds: float | None = None
    checkpoint: str | None = None
    checkpoints: SaveCounts = dataclasses.field(default_factory=SaveCounts)
    export: str | None = None
    export_refused: str | None = None
    predictions: str | None = None
    export_best: str | None = None
    error: str | None = None  # why the run failed; of another status the file has no such field

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Report":
        """The report that `to_json` gave; of an earlier version fields may be missing."""
        fields = dict(data)
        if "evaluations" in fields:
            fields["evaluations"] = list(map(EvaluationRow.nested, fields["evaluations"]))
        if best := fields.get("best_evaluation"):
            fields["best_evaluation"] = BestEvaluation.nested(best)
        return msgspec.convert(fields, cls)

    def to_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        fields["evaluations"] = [each.to_json() for each in self.evaluations]
        if self.best_evaluation is not None:
            fields["best_evaluation"] = self.best_evaluation.to_json()
        if self.error is None:
            del fields["error"]
        return fields


@contextlib.contextmanager
def reopened(job_dir: JobDir) -> Iterator[None]:
    """Says that a job runs again, where a report says that its chief will do no more.

    For tasks that ask so before the new chief has all that a report of its own holds. Where that
    chief fails before it writes one, the report is as before.
    """
    fields = read(job_dir)
    if fields is None or fields["status"] == RUNNING:
        yield
        return
    running = {**fields, "status": RUNNING}
    _write(job_dir, running)
    try:
        yield
    except BaseException:
        if read(job_dir) == running:
            _write(job_dir, fields)
        raise


def read(job_dir: JobDir, patience: float | None = None) -> dict[str, Any] | None:
    """The fields of a job's report, None when it has none yet.

    A file that is empty or cut off, as a power cut can leave it, is none: the next run writes it
    again, and nothing depends on the old one.
    """
    path = job_dir.report
    try:
        fields = json.loads(files.read(path, patience))
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.warning("%s is empty or damaged and counts as none: %s", path, error)
        return None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise UserError(f"{path} is not a report of this version; delete it")
    return fields


def load(job_dir: JobDir) -> Report | None:
    """The whole report of a job, None where `read` finds none."""
    fields = read(job_dir)
    try:
        return None if fields is None else Report.from_json(fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{job_dir.report} is not a report of this version ({error}); delete it"
        ) from None


def write(job_dir: JobDir, report: Report) -> None:
    """Writes the report of a job in one piece, in place of the one that is there."""
    _write(job_dir, report.to_json())


def _write(job_dir: JobDir, fields: Mapping[str, Any]) -> None:
    files.replace(job_dir.report, json.dumps(fields, indent=1) + "\n")
