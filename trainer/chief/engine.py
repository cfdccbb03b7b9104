"""The parameters of a run, and what trains and evaluates them where an executor runs closures."""

import dataclasses
import time
from typing import Any

import keras
import tensorflow as tf

from tfps.allreduce.closures import ReplicaClosures
from tfps.allreduce.coordinator import ReplicaCoordinator
from tfps.allreduce.executor import ReplicaExecutor
from tfps.allreduce.replica import Replica
from tfps.allreduce.step import ReplicaStep
from tfps.barrier.barrier import Barrier
from tfps.barrier.bounded_staleness import BoundedStalenessBarrier
from tfps.barrier.membership import BarrierMembers
from tfps.barrier.rounds import SyncBarrier
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.coordinator import Coordinator, slots
from tfps.coordinator.executor import Executor
from tfps.data.manifest import Manifest
from tfps.data.record_source import RecordSource
from tfps.evaluation.history import Evaluation
from tfps.evaluation.metrics import task_metrics
from tfps.experiment.mode import LOCAL_SGD, SYNC, Mode
from tfps.leases.progress import LeaseProgress
from tfps.store.parameter_store import ParameterStore
from tfps.worker.closures import Closures
from tfps.worker.local_sgd import LocalTraining
from tfps.worker.step import Step
from trainer.chief.inputs import identity
from trainer.chief.run_inputs import RunInputs


@dataclasses.dataclass(frozen=True)
class Engine:
    """A model with its parameters, ready to be trained and evaluated.

    Attributes:
        inputs: What it was made from.
        store: The parameters.
        coordinator: Gives closures to the executor.
        members: Whom workers wait for; None where nobody waits.
    """

    inputs: RunInputs
    store: ParameterStore
    coordinator: Coordinator | ReplicaCoordinator
    members: BarrierMembers | None

    @classmethod
    def build(
        cls, inputs: RunInputs, executor: Executor, monitor: TaskMonitor, stall_seconds: float
    ) -> "Engine":
        """Creates the parameters, with their initial values.

        Args:
            inputs: The run's.
            executor: Where closures run and parameters lie.
            monitor: Tells which tasks are lost.
            stall_seconds: Limit for the next batch.
        """
        experiment, model, mode = inputs.experiment, inputs.model, inputs.mode
        train = experiment.train
        waits = mode.waits and inputs.cluster.job == "chief"
        leases = slots(executor, waits)
        store = ParameterStore(
            model,
            inputs.rules,
            executor.devices,
            train.seed,
            train.wire_dtype,
            mode.staleness_power,
        )
        progress = LeaseProgress(leases, executor.devices[0])
        # One GPU or none needs no names: TensorFlow places what it can on the GPU.
        gpus = [f"/device:GPU:{k}" for k in range(executor.gpus)] if executor.gpus > 1 else [""]
        step = Step(experiment.task, model, store, train.jit_compile, gpus)
        local = barrier = members = None
        if mode.name == LOCAL_SGD:
            local = LocalTraining(step, store, len(executor.workers), mode.sync_every)
        if waits:
            barrier = _barrier(mode, store, progress, leases)
            ps_calls = PsCalls(monitor, stall_seconds)
            members = BarrierMembers(barrier, monitor, ps_calls, mode.round_seconds)
        closures = Closures(
            experiment,
            step,
            progress,
            model.prediction_names,
            executor.worker_index,
            barrier,
            local,
            locate=inputs.staged.locate,
        )
        if isinstance(executor, ReplicaExecutor):
            replica = _replica(inputs, executor, step, progress, closures, monitor, stall_seconds)
            return cls(
                inputs, store, ReplicaCoordinator(replica, replica_fingerprint(inputs, store)), None
            )
        unrecorded = mode.unrecorded_batches(train.pipeline_depth)
        coordinator = Coordinator(
            executor, closures, progress, monitor, train, stall_seconds, unrecorded, members
        )
        return cls(inputs, store, coordinator, members)

    def stop(self) -> None:
        """Ends what goes on beside the closures."""
        if self.members:
            self.members.stop()

    def evaluate(self, checkpoint: Checkpoint) -> Evaluation:
        """Evaluates the parameters on all evaluation shards, every record once.

        Args:
            checkpoint: The one that holds these parameters.

        Raises:
            UserError: If a shard or a metric cannot be used.
            RunError: If a ps is lost or nothing moves any more.
        """
        data, began = self.inputs.eval_data, time.monotonic()
        assert data is not None
        result = self.coordinator.evaluate(eval_shards(data))
        task = self.inputs.experiment.task
        return Evaluation(
            checkpoint=checkpoint.name,
            steps=checkpoint.steps,
            epoch=checkpoint.queue.epoch,
            records=len(next(iter(result.labels.values()))),
            metrics={"loss": result.loss, **task_metrics(task, result.labels, result.predictions)},
            seconds=round(time.monotonic() - began, 3),
            dataset=identity(data),
        )


def _barrier(mode: Mode, store: ParameterStore, progress: LeaseProgress, members: int) -> Barrier:
    """Where the workers of a mode wait for each other."""
    if mode.name == SYNC:
        return SyncBarrier(store, progress, members, mode.backup_workers)
    return BoundedStalenessBarrier(store, progress, members, mode.max_staleness)


def _replica(
    inputs: RunInputs,
    executor: ReplicaExecutor,
    step: Step,
    progress: LeaseProgress,
    closures: Closures,
    monitor: TaskMonitor,
    stall_seconds: float,
) -> Replica:
    """This process's part in a group that trains without ps."""
    round_step = ReplicaStep(step, executor.group)
    rounds = ReplicaClosures(inputs.experiment, round_step, progress, inputs.staged.locate)
    batch_size = inputs.experiment.train.batch_size
    return Replica(executor, step.store, (rounds, closures), monitor, batch_size, stall_seconds)


def eval_shards(data: Manifest) -> list[tuple[RecordSource, int]]:
    """Source and number of records of every shard that has any."""
    return [
        (RecordSource(data.path_of(shard), shard.compression, end=shard.records), shard.records)
        for shard in data.shards
        if shard.records
    ]


def replica_fingerprint(inputs: RunInputs, store: ParameterStore) -> dict[str, Any]:
    """What must be equal on all replicas, as JSON-ready data by name."""
    data = {"--train_data": inputs.data, "--eval_data": inputs.eval_data}
    return {
        **{flag: identity(manifest) if manifest else None for flag, manifest in data.items()},
        "data.shuffle_buffer": inputs.experiment.data.shuffle_buffer,
        **{f"train.{k}": v for k, v in dataclasses.asdict(inputs.experiment.train).items()},
        "parameters": store.signature(),
        "TensorFlow": tf.__version__,
        "Keras": keras.__version__,
    }
