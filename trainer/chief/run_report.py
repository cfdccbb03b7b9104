"""The report of a run, filled in as the run goes on."""

import dataclasses
import logging
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import tfps
from tfps.errors import UserError
from tfps.evaluation.history import BestMetric, Evaluation
from tfps.experiment.mode import LocalSGD
from tfps.job_dir import report as report_file
from tfps.job_dir.chief_fence import ChiefFence
from tfps.job_dir.report import (
    FINISHED,
    BestEvaluation,
    EvaluationRow,
    ExampleCounts,
    KeyTotals,
    LossScaleState,
    Report,
    ReportedBadRecord,
    ReportedFailure,
    ReportedRecovery,
    RoundCounts,
    SaveCounts,
    StalenessCounts,
    TaskCounts,
    Versions,
    WorkerShare,
)
from tfps.leases.queue import LeaseQueue
from tfps.storage import objects
from tfps.storage.files import StorageError
from trainer.chief.engine import Engine
from trainer.chief.run_inputs import RunInputs

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TrainingCounts:
    """How far a training has come; the fields are those of the report with the same names."""

    examples: ExampleCounts
    bad_records: list[ReportedBadRecord]
    workers: list[WorkerShare]
    epochs: int
    steps: int
    staleness: StalenessCounts
    rounds: RoundCounts | None
    steps_per_lease: int
    loss_scale: LossScaleState | None
    keys: Mapping[str, KeyTotals]
    examples_per_second: float
    storage_retries: int

    @classmethod
    def read(cls, engine: Engine, queue: LeaseQueue) -> "TrainingCounts":
        """Reads what is counted here and on the ps."""
        store, coordinator, inputs = engine.store, engine.coordinator, engine.inputs
        last = inputs.settings.experiment.train.epochs - 1
        return cls(
            examples=ExampleCounts(
                per_epoch=inputs.data.train.of_epoch(min(queue.epoch, last)).records,
                trained=queue.trained,
                skipped=queue.skipped,
                repeated=queue.repeated,
                bad=queue.bad,
            ),
            bad_records=queue.bad_records.report(),
            workers=coordinator.meter.worker_shares.report(),
            epochs=queue.epoch,
            steps=store.steps(),
            staleness=store.staleness.report(),
            rounds=engine.members.report() if engine.members else None,
            steps_per_lease=coordinator.meter.lease_length.steps,
            loss_scale=LossScaleState(*store.loss_scale.read()) if store.loss_scale else None,
            keys={
                table: KeyTotals(**counts)
                for group in store.keyed_groups
                for table, counts in group.counts().items()
            },
            examples_per_second=round(coordinator.meter.throughput.examples_per_second, 1),
            storage_retries=objects.count(),
        )


@dataclasses.dataclass(frozen=True)
class TaskHistory:
    """What became of the tasks since the run began; the fields are the report's."""

    seconds: float
    failures: list[ReportedFailure]
    failures_by_job: Mapping[str, int]
    recoveries: list[ReportedRecovery]
    left_out: list[str]


class RunReport:
    """A run's report; each method adds something and writes the file.

    Raises `SupersededError` if the job_dir is another chief's, `StorageError` if the write fails.
    """

    def __init__(self, job_dir: str, fence: ChiefFence, report: Report):
        self._job_dir = job_dir
        self._fence = fence
        self._report = report

    @classmethod
    def begin(cls, inputs: RunInputs, fence: ChiefFence) -> "RunReport":
        """Writes that a run has begun, in place of the report of the run before."""
        job_dir = inputs.settings.job_dir
        begun = cls(job_dir, fence, first_report(inputs, _last_report(job_dir)))
        begun._write()
        return begun

    @property
    def sync_every(self) -> int:
        """Steps between exchanges; 0 where they are still to be chosen, or there are none."""
        return self._report.sync_every or 0

    def chose_sync_every(self, steps: int) -> None:
        """Says how many steps lie between exchanges, where that was to be chosen."""
        self._write(sync_every=steps)

    def restored(self, checkpoint: str, passed_over: Mapping[str, str], seconds: float) -> None:
        """Says that the run goes on from a checkpoint."""
        self._write(
            resumed_from=checkpoint, passed_over=passed_over, restore_seconds=round(seconds, 3)
        )

    def began_from(self, checkpoint: str, seconds: float) -> None:
        """Says that the job has begun with parameters of another one."""
        self._write(init_from=checkpoint, restore_seconds=round(seconds, 3))

    def ready(self, checkpoint: str | None, counts: TrainingCounts, history: TaskHistory) -> None:
        """Reports that training may begin, from the checkpoint's path or None."""
        self._write(checkpoint=checkpoint, **_fields(counts), **_fields(history))

    def saved(
        self, checkpoint: str, saves: SaveCounts, counts: TrainingCounts, history: TaskHistory
    ) -> None:
        """Says that a checkpoint is committed."""
        parts = {**_fields(counts), **_fields(history)}
        self._write(checkpoint=checkpoint, checkpoints=saves, **parts)

    def evaluated(self, evaluations: Sequence[Evaluation], metric: BestMetric) -> None:
        """Says what all evaluations measured, and which is the best."""
        rows = [EvaluationRow(x.epoch, x.steps, x.metrics) for x in evaluations]
        best = metric.best([x.metrics for x in evaluations])
        self._write(
            metrics=rows[-1].metrics,
            evaluations=rows,
            best_evaluation=None if best is None else BestEvaluation(metric.name, rows[best]),
        )

    def tasks_changed(self, history: TaskHistory) -> None:
        """Says which tasks were lost, or are there again."""
        self._write(**_fields(history))

    def stopped_early(self, reason: str) -> None:
        """Says why the training ends before its last epoch."""
        self._write(stopped_early=reason)

    def exported(self, newest: str | None, refused: str | None = None) -> None:
        """Records where the newest version is, and a model that was refused to be one."""
        self._write(export=newest, export_refused=refused)

    def exported_best(self, path: str) -> None:
        """Says where the evaluator has exported the model of the best evaluation to."""
        self._write(export_best=path)

    def predicted(self, path: str, history: TaskHistory) -> None:
        """Says where the predictions are of all records, which was all there was to do."""
        self._write(status=FINISHED, predictions=path, **_fields(history))

    def measured(self, metrics: Mapping[str, float], history: TaskHistory) -> None:
        """Says what was measured of a checkpoint, which was all there was to do."""
        self._write(status=FINISHED, metrics=dict(metrics), **_fields(history))

    def finished(self, counts: TrainingCounts, history: TaskHistory) -> None:
        """Says that the run has done all there was to do."""
        self._write(status=FINISHED, **_fields(counts), **_fields(history))

    def ended(self, status: str, history: TaskHistory, error: str | None = None) -> None:
        """Reports another end of the run; only logs a failed write, as the end's reason matters."""
        try:
            self._write(status=status, error=error, **_fields(history))
        except StorageError as failure:
            _log.warning("the report does not tell of the end: %s", failure)

    def _write(self, **changes: Any) -> None:
        self._fence.check()
        self._report = dataclasses.replace(self._report, **changes)
        report_file.write(self._job_dir, self._report)


def first_report(inputs: RunInputs, before: Report | None) -> Report:
    """The report at a run's start, with the last run's checkpoint until this one looks."""
    settings, data, _ = inputs
    experiment, cluster, mode = settings.experiment, settings.cluster, settings.mode
    steps = mode.sync_every if isinstance(mode, LocalSGD) else None
    begun = Report(
        mode=mode.name,
        config=experiment.name,
        cluster=TaskCounts(len(cluster.workers), len(cluster.ps)),
        versions=Versions(
            tfps=tfps.__version__,
            tensorflow=tf.__version__,
            keras=keras.__version__,
            python=platform.python_version(),
        ),
        batch_size=experiment.train.batch_size,
        negatives=experiment.data.negatives,
        examples=ExampleCounts(per_epoch=data.train.of_epoch(0).records),
        pipeline_depth=experiment.train.pipeline_depth,
        sync_every=steps or None,
        best_auc=data.eval.best_auc if data.eval else None,
    )
    if before is None:
        return begun
    return dataclasses.replace(
        begun,
        examples=before.examples,
        bad_records=before.bad_records,
        epochs=before.epochs,
        steps=before.steps,
        # What was chosen once stays.
        sync_every=begun.sync_every or (None if steps is None else before.sync_every),
        checkpoint=before.checkpoint,
        init_from=before.init_from if before.checkpoint else None,
    )


def _last_report(job_dir: str) -> Report | None:
    """The report of the job's last run; None where there is none that can be used."""
    try:
        return report_file.load(job_dir)
    except UserError as error:
        _log.warning("the report is written again: %s", error)
        return None


def _fields(part: TaskHistory | TrainingCounts) -> dict[str, Any]:
    """A part's fields by name."""
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
