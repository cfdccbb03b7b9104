"""The parameters of a run, and what trains and evaluates them where an executor runs closures."""

import dataclasses
import functools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.allreduce.coordinator import Replica, ReplicaCoordinator
from tfps.allreduce.group import ReplicaExecutor
from tfps.allreduce.step import ReplicaClosures, ReplicaStep
from tfps.barrier.barrier import Barrier, BarrierMembers, BoundedStalenessBarrier
from tfps.barrier.rounds import SyncBarrier
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.coordinator import Coordinator
from tfps.coordinator.executor import Executor
from tfps.coordinator.lanes import lanes_of
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.data.feature import Feature
from tfps.data.record_source import Piece, RecordSource, pieces_of
from tfps.evaluation.curves import ScoreCurves
from tfps.evaluation.history import Evaluation
from tfps.evaluation.metrics import EvaluatedPiece, RunningMetrics
from tfps.evaluation.progressive import judged_labels
from tfps.experiment.experiment import Experiment
from tfps.experiment.mode import Async, Bounded, LocalSGD, Sync
from tfps.leases.progress import LeaseProgress
from tfps.monitoring.events import Histogram, ParametersMeasured
from tfps.store.parameter_store import ParameterStore
from tfps.worker.async_loop import AsyncLoop, ExchangeLoop
from tfps.worker.barrier_loop import BarrierLoop
from tfps.worker.closures import Closures, LeaseResult
from tfps.worker.judge import Judge
from tfps.worker.local_sgd import LocalSgdLoop
from tfps.worker.loop import UNROLL, UNROLL_IN_ONE_PROCESS, UPDATES_PER_COPY, Loop, SyncEvery
from tfps.worker.step import Step
from trainer.chief.run_inputs import RunInputs, RunPlan

_PIECE_RECORDS = 1 << 16
_log = logging.getLogger(__name__)
_BINS = 30  # as many as Keras's callback draws
_ROWS = 4096  # of a table, at most


@dataclasses.dataclass(frozen=True)
class Engine:
    """A model with its parameters, ready to train and evaluate; `members` None if none wait."""

    inputs: RunInputs
    store: ParameterStore
    coordinator: Coordinator
    members: BarrierMembers | None

    @classmethod
    def build(
        cls,
        inputs: RunInputs,
        executor: Executor,
        monitor: TaskMonitor,
        stall_seconds: float,
        kept: Sequence[Feature] = (),
        sync_every: SyncEvery | None = None,
    ) -> "Engine":
        """Creates the parameters, with their initial values."""
        settings, data, plan = inputs
        experiment, mode = settings.experiment, settings.mode
        train = experiment.train
        waiting = mode if isinstance(mode, Sync | Bounded) else None
        if not settings.is_chief:
            waiting = None
        lanes = lanes_of(executor, waiting is not None)
        store = _store(experiment, plan, executor)
        progress = LeaseProgress(lanes, executor.devices[0])
        # By name: without one TensorFlow leaves a worker's GPU idle (seen on an H200).
        gpus = [f"/device:GPU:{k}" for k in range(executor.gpus)] or [""]
        has_labels = bool(data.train.of_epoch(0).labels or not experiment.task.labels())
        judged = judged_labels(experiment.task, plan.model.prediction_shapes) if has_labels else {}
        judge = Judge(judged) if judged else None
        step = Step(experiment.task, plan.model, store, train.jit_compile, gpus, judge)
        barrier = members = None
        if waiting:
            barrier = _barrier(waiting, train.pipeline_depth, store, progress, lanes)
            ps_calls = PsCalls(monitor, stall_seconds)
            members = BarrierMembers(barrier, monitor, ps_calls, waiting.round_seconds)
        if not sync_every:
            sync_every = SyncEvery(mode.sync_every if isinstance(mode, LocalSGD) else 0)
        make_loop = functools.partial(_loop, inputs, step, progress, executor, barrier, sync_every)
        index, locate = executor.worker_index, data.staged.locate
        closures = Closures(
            experiment, step, make_loop(), progress, index, locate, kept, has_labels
        )
        coordinator: Coordinator
        if isinstance(executor, ReplicaExecutor):
            rounds = ReplicaStep(step, executor.group)
            train_rounds = ReplicaClosures(experiment, rounds, progress, locate)
            replica = Replica(executor, store, train_rounds, closures, monitor, stall_seconds)
            coordinator = ReplicaCoordinator(replica, replica_fingerprint(inputs, store))
        else:

            def ended(result: LeaseResult) -> None:
                if sync_every.measured(result.worker, result.times):
                    closures.train_by(make_loop())

            def unrecorded() -> int:
                most = sync_every.most_unrecorded
                return mode.unrecorded_batches(train.pipeline_depth, most)

            coordinator = WorkerCoordinator(
                executor, closures, progress, monitor, stall_seconds, unrecorded, members, ended
            )
        return cls(inputs, store, coordinator, members)

    def trace(self) -> None:
        """Traces what trains leases ahead of the first; replicas do that at the same time."""
        if isinstance(self.coordinator, WorkerCoordinator):
            self.coordinator.trace()

    def stop(self) -> None:
        """Ends what runs next to the closures."""
        if self.members:
            self.members.stop()

    def evaluate(self, checkpoint: Checkpoint) -> Evaluation:
        """Evaluates the parameters on all evaluation shards, every record once."""
        data, began = self.inputs.data.eval, time.monotonic()
        assert data is not None
        results = self.coordinator.evaluate(evaluation_pieces(self.inputs))
        metrics, curves = measure(self.inputs, results, data.records)
        return Evaluation(
            checkpoint=checkpoint.name,
            steps=checkpoint.steps,
            epoch=checkpoint.queue.epoch,
            records=data.records,
            metrics=metrics,
            seconds=round(time.monotonic() - began, 3),
            dataset=data.identity,
            curves={name: found._asdict() for name, found in curves.items()},
        )


def _store(experiment: Experiment, plan: RunPlan, executor: Executor) -> ParameterStore:
    mode, train = experiment.mode, experiment.train
    return ParameterStore(
        plan.model,
        plan.rules,
        executor.devices,
        train.seed,
        train.wire_dtype,
        mode.staleness_power if isinstance(mode, Async) else 0.0,
        experiment.callbacks is not None,
        packs=executor.is_remote,
    )


def _barrier(
    mode: Sync | Bounded,
    pipeline_depth: int,
    store: ParameterStore,
    progress: LeaseProgress,
    members: int,
) -> Barrier:
    """Where the workers of a mode wait for each other."""
    if isinstance(mode, Sync):
        return SyncBarrier(store, progress, members, mode.backup_workers)
    # What is pulled ahead is so many steps older when it is used.
    lead = mode.max_staleness - pipeline_depth
    return BoundedStalenessBarrier(store, progress, members, lead)


def _loop(
    inputs: RunInputs,
    step: Step,
    progress: LeaseProgress,
    executor: Executor,
    barrier: Barrier | None,
    sync_every: SyncEvery,
) -> Loop:
    """How a worker trains a lease in a run's mode."""
    mode, depth = inputs.settings.mode, inputs.settings.experiment.train.pipeline_depth
    unroll = steps_per_iteration(inputs, executor.is_remote)
    if barrier:
        has_backups = isinstance(mode, Sync) and mode.backup_workers > 0
        return BarrierLoop(step, barrier, has_backups, depth, unroll)
    if isinstance(mode, LocalSGD):
        workers, is_timed = len(executor.workers), not sync_every.is_chosen
        return LocalSgdLoop(step, step.store, progress, workers, sync_every.steps, is_timed)
    if isinstance(mode, Async) and mode.batches_per_exchange > 1:
        return ExchangeLoop(step, progress, mode.batches_per_exchange, unroll)
    return AsyncLoop(step, progress, depth, unroll)


def steps_per_iteration(inputs: RunInputs, is_remote: bool) -> int:
    """How many steps an iteration of a worker's loop has in a run."""
    if inputs.plan.model.has_loops:
        return 1  # each copy of a loop takes a worker a second and more to begin
    train = inputs.settings.experiment.train
    records = inputs.data.train.records_in(train.epochs)
    most = UNROLL if is_remote else UNROLL_IN_ONE_PROCESS
    if records is None:
        return most
    updates = records // train.batch_size
    return max(1, min(most, updates // UPDATES_PER_COPY))


class Measurement(NamedTuple):
    """What an evaluation measured: the loss, the task's metrics and the model's own, by name."""

    metrics: dict[str, float]
    curves: dict[str, ScoreCurves]  # of each metric that has them


def measure(inputs: RunInputs, results: Iterable[EvaluatedPiece], records: int) -> Measurement:
    """Measures all results of an evaluation; notes on them are logged."""
    measured, loss_sum = RunningMetrics(inputs.settings.experiment.task), 0.0
    of_layers = []
    for result in results:
        measured.add(result.labels, result.predictions)
        loss_sum += float(result.loss_sum)
        of_layers.append(result.measured)
    metrics, curves = {"loss": loss_sum / records}, {}
    for name, found in measured.result().items():
        metrics[name] = found.value
        if found.curves:
            curves[name] = found.curves
        if found.note:
            _log.info("%s %s", name, found.note)
    own = inputs.plan.model.layer_metrics.result(of_layers)
    others = {name: value for name, value in own.items() if name not in metrics}
    return Measurement(metrics | others, curves)


def evaluation_pieces(inputs: RunInputs) -> Iterator[Piece]:
    """The evaluation data in pieces; none of it where there is none."""
    data, size = inputs.data.eval, inputs.settings.experiment.train.batch_size
    return pieces_of(data, piece_records(size)) if data else iter(())


def piece_records(batch_size: int) -> int:
    """How many records a closure evaluates: whole batches, whose results fit in a message."""
    return max(1, _PIECE_RECORDS // batch_size) * batch_size


def replica_fingerprint(inputs: RunInputs, store: ParameterStore) -> dict[str, Any]:
    """What must be equal on all replicas, as JSON-ready data by name."""
    experiment, data = inputs.settings.experiment, inputs.data
    return {
        "--data.train": list(data.train.identities()),
        "--data.eval": data.eval.identity if data.eval else None,
        **{
            f"data.{field}": getattr(experiment.data, field)
            for field in ("shuffle_buffer", "negatives", "negatives_of", "negatives_by")
        },
        **{f"train.{k}": v for k, v in dataclasses.asdict(experiment.train).items()},
        "parameters": store.signature(),
        "callbacks": experiment.callbacks is not None,
        "TensorFlow": tf.__version__,
        "Keras": keras.__version__,
    }


def measure_parameters(engine: Engine, ps_calls: PsCalls, epoch: int) -> ParametersMeasured:
    """Measures parameters, some rows per table, and the first batch's gradients; no push."""
    model, store = engine.inputs.plan.model, engine.store
    paths = [variable.path for variable in model.dense]

    def read() -> tuple[dict[str, np.ndarray], int]:
        values = dict(zip(paths, store.read_dense(), strict=True))
        for index, table in enumerate(model.tables):
            values[table.name] = store.sample_rows(index, _ROWS)
        return values, store.steps()

    values, steps = ps_calls("reading parameters", read)
    dense, norms = engine.coordinator.gradients(*_first_batch(engine))
    gradients = dict(zip(paths, dense, strict=True)) | norms
    return ParametersMeasured(
        at=time.time(),
        steps=steps,
        epoch=epoch,
        parameters={name: spread(each) for name, each in values.items()},
        gradients={name: spread(each) for name, each in gradients.items()},
    )


def spread(values: np.ndarray) -> Histogram:
    """How values are spread; those that are not finite are counted apart."""
    flat = np.ravel(values).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    counts, edges = np.histogram(finite, _BINS)
    return Histogram(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        norm=float(np.linalg.norm(finite)),
        left_out=len(flat) - len(finite),
    )


def _first_batch(engine: Engine) -> tuple[RecordSource, tuple[int, int, int]]:
    """The source of the first shard that has records, and a lease of its first batch."""
    train = engine.inputs.settings.experiment.train
    piece = next(pieces_of(engine.inputs.data.train.of_epoch(0), train.batch_size))
    return piece.source, (0, piece.records, train.seed)
