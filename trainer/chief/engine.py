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
from tfps.coordinator.coordinator import Coordinator
from tfps.coordinator.executor import Executor
from tfps.coordinator.lanes import lanes_of
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.data.manifest import Manifest
from tfps.data.record_source import RecordSource
from tfps.evaluation.history import Evaluation
from tfps.evaluation.metrics import task_metrics
from tfps.experiment.experiment import Experiment
from tfps.experiment.mode import LOCAL_SGD, SYNC, Mode
from tfps.leases.progress import LeaseProgress
from tfps.store.parameter_store import ParameterStore
from tfps.worker.async_loop import AsyncLoop
from tfps.worker.barrier_loop import BarrierLoop
from tfps.worker.closures import Closures
from tfps.worker.local_sgd import LocalSgdLoop
from tfps.worker.loop import UNROLL, UNROLL_IN_ONE_PROCESS, Loop
from tfps.worker.step import Step
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
    coordinator: Coordinator
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
        lanes = lanes_of(executor, waits)
        store = ParameterStore(
            model,
            inputs.rules,
            executor.devices,
            train.seed,
            train.wire_dtype,
            mode.staleness_power,
            experiment.callbacks is not None,
        )
        progress = LeaseProgress(lanes, executor.devices[0])
        # One GPU or none needs no names: TensorFlow places what it can on the GPU.
        gpus = [f"/device:GPU:{k}" for k in range(executor.gpus)] if executor.gpus > 1 else [""]
        step = Step(experiment.task, model, store, train.jit_compile, gpus)
        barrier = members = None
        if waits:
            barrier = _barrier(mode, store, progress, lanes)
            ps_calls = PsCalls(monitor, stall_seconds)
            members = BarrierMembers(barrier, monitor, ps_calls, mode.round_seconds)
        loop = _loop(experiment, step, progress, executor, barrier, model.has_loops)
        index, locate = executor.worker_index, inputs.staged.locate
        closures = Closures(experiment, step, loop, progress, index, locate)
        coordinator: Coordinator
        if isinstance(executor, ReplicaExecutor):
            rounds = ReplicaStep(step, executor.group)
            train_rounds = ReplicaClosures(experiment, rounds, progress, locate)
            replica = Replica(executor, store, train_rounds, closures, monitor, stall_seconds)
            coordinator = ReplicaCoordinator(replica, replica_fingerprint(inputs, store))
        else:
            unrecorded = mode.unrecorded_batches(train.pipeline_depth)
            coordinator = WorkerCoordinator(
                executor, closures, progress, monitor, stall_seconds, unrecorded, members
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
        shards = sources_of(data)
        result = self.coordinator.evaluate(shards)
        task = self.inputs.experiment.task
        return Evaluation(
            checkpoint=checkpoint.name,
            steps=checkpoint.steps,
            epoch=checkpoint.queue.epoch,
            records=sum(count for _, count in shards),
            metrics={"loss": result.loss, **task_metrics(task, result.labels, result.predictions)},
            seconds=round(time.monotonic() - began, 3),
            dataset=data.identity,
        )


def _barrier(mode: Mode, store: ParameterStore, progress: LeaseProgress, members: int) -> Barrier:
    """Where the workers of a mode wait for each other."""
    if mode.name == SYNC:
        return SyncBarrier(store, progress, members, mode.backup_workers)
    return BoundedStalenessBarrier(store, progress, members, mode.max_staleness)


def _loop(
    experiment: Experiment,
    step: Step,
    progress: LeaseProgress,
    executor: Executor,
    barrier: Barrier | None,
    has_loops: bool,
) -> Loop:
    """How a worker trains a lease in an experiment's mode."""
    mode = experiment.mode
    unroll = UNROLL if executor.is_remote else UNROLL_IN_ONE_PROCESS
    if has_loops:
        unroll = 1  # each copy of a loop takes a worker a second and more to begin
    if barrier:
        return BarrierLoop(step, barrier, mode.backup_workers > 0, unroll)
    if mode.name == LOCAL_SGD:
        workers = len(executor.workers)
        return LocalSgdLoop(step, step.store, progress, workers, mode.sync_every)
    return AsyncLoop(step, progress, experiment.train.pipeline_depth, unroll)


def sources_of(data: Manifest) -> list[tuple[RecordSource, int]]:
    """Source and number of records of every shard that has any."""
    return [
        (RecordSource(data.path_of(shard), shard.compression, end=shard.records), shard.records)
        for shard in data.shards
        if shard.records
    ]


def replica_fingerprint(inputs: RunInputs, store: ParameterStore) -> dict[str, Any]:
    """What must be equal on all replicas, as JSON-ready data by name."""
    return {
        "--train_data": list(inputs.data.identities()),
        "--eval_data": inputs.eval_data.identity if inputs.eval_data else None,
        **{
            f"data.{field}": getattr(inputs.experiment.data, field)
            for field in ("shuffle_buffer", "negatives", "negatives_of", "negatives_by")
        },
        **{f"train.{k}": v for k, v in dataclasses.asdict(inputs.experiment.train).items()},
        "parameters": store.signature(),
        "callbacks": inputs.experiment.callbacks is not None,
        "TensorFlow": tf.__version__,
        "Keras": keras.__version__,
    }
