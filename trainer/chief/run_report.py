"""The report of a run, filled in as the run continues."""

import dataclasses
import logging
import platform
from typing import Any

import keras
import tensorflow as tf

import tfps
from tfps.data.followed_data import FollowedData
from tfps.errors import UserError
from tfps.experiment.mode import LocalSGD
from tfps.job_dir import JobDir
from tfps.job_dir import report as report_file
from tfps.job_dir.chief_fence import ChiefFence
from tfps.job_dir.report import (
    ExampleCounts,
    FollowedDatasets,
    KeyTotals,
    LossScaleState,
    Report,
    TaskCounts,
    Versions,
)
from tfps.leases.queue import LeaseQueue
from tfps.storage import objects
from trainer.chief.engine import Engine
from trainer.chief.run_inputs import RunInputs

_log = logging.getLogger(__name__)


class RunReport:
    """A run's report, which it writes again with each change.

    Raises `SupersededError` if the job_dir is another chief's, `StorageError` if the write fails.
    """

    def __init__(self, job_dir: JobDir, fence: ChiefFence, report: Report):
        self._job_dir = job_dir
        self._fence = fence
        self._report = report

    @classmethod
    def begin(cls, inputs: RunInputs, fence: ChiefFence) -> "RunReport":
        """Writes that a run has begun, in place of the report of the run before."""
        job_dir = inputs.settings.job_dir
        begun = cls(job_dir, fence, first_report(inputs, _last_report(job_dir)))
        begun.update()
        return begun

    @property
    def sync_every(self) -> int:
        """Steps between exchanges; 0 where they are still to be chosen, or there are none."""
        return self._report.sync_every or 0

    def update(self, **changes: Any) -> None:
        """Writes fields of the report."""
        self._fence.check()
        self._report = dataclasses.replace(self._report, **changes)
        report_file.write(self._job_dir, self._report)


def training_counts(engine: Engine, queue: LeaseQueue) -> dict[str, Any]:
    """How far a training has come, counted here and on the ps: fields of the report."""
    store, meter, inputs = engine.store, engine.coordinator.meter, engine.inputs
    data, last = inputs.data.train, inputs.settings.experiment.train.epochs - 1
    followed = None
    if isinstance(data, FollowedData):
        last = queue.epoch
        followed = FollowedDatasets(data.wanted, data.not_taken, data.notes)
    judged = meter.judged_so_far.metrics()
    return {
        **({"progressive": judged} if judged else {}),  # else what the run before has left
        "examples": ExampleCounts(
            per_epoch=data.of_epoch(min(queue.epoch, last)).records,
            trained=queue.trained,
            skipped=queue.skipped,
            repeated=queue.repeated,
            bad=queue.bad,
        ),
        "bad_records": queue.bad_records.report(),
        "workers": meter.worker_shares.report(),
        "epochs": queue.epoch,
        "followed": followed,
        "steps": store.steps(),
        "staleness": store.staleness.report(),
        "rounds": engine.members.report() if engine.members else None,
        "steps_per_lease": meter.lease_length.steps,
        "loss_scale": LossScaleState(*store.loss_scale.read()) if store.loss_scale else None,
        "keys": {
            table: KeyTotals(**counts)
            for group in store.keyed_groups
            for table, counts in group.counts().items()
        },
        "examples_per_second": round(meter.throughput.examples_per_second, 1),
        "examples_per_second_with_pauses": round(meter.throughput.with_pauses, 1),
        "storage_retries": objects.count(),
    }


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
        progressive=before.progressive,
        # What was chosen once stays.
        sync_every=begun.sync_every or (None if steps is None else before.sync_every),
        checkpoint=before.checkpoint,
        init_from=before.init_from if before.checkpoint else None,
    )


def _last_report(job_dir: JobDir) -> Report | None:
    """The report of the job's last run; None where there is none that can be used."""
    try:
        return report_file.load(job_dir)
    except UserError as error:
        _log.warning("the report is written again: %s", error)
        return None
