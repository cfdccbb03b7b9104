"""What is counted while a run trains, for its report."""

import dataclasses
from collections.abc import Mapping

from tfps.job_dir.report import (
    ExampleCounts,
    KeyTotals,
    LossScaleState,
    ReportedBadRecord,
    RoundCounts,
    StalenessCounts,
    WorkerShare,
)
from tfps.leases.queue import LeaseQueue
from tfps.storage import objects
from trainer.chief.engine import Engine


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
        last = inputs.experiment.train.epochs - 1
        return cls(
            examples=ExampleCounts(
                per_epoch=inputs.data.of_epoch(min(queue.epoch, last)).records,
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
