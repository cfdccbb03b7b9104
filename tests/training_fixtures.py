"""A dataset and an experiment, small enough to train within a test."""

import copy
import dataclasses
import functools
import posixpath
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from configs.smoke import Smoke, get_config
from tfps.barrier.barrier import BoundedStalenessBarrier
from tfps.barrier.rounds import SyncBarrier
from tfps.checkpoint import saver
from tfps.checkpoint.checkpoint import Draft
from tfps.checkpoint.directory import OldCheckpoints, Retention
from tfps.checkpoint.writer import CheckpointWriter
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.spec import Cluster
from tfps.coordinator.executor import LocalExecutor
from tfps.coordinator.lanes import lanes_of
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.data.record_source import RecordSource, pieces_of
from tfps.data.training_data import TrainingData
from tfps.evaluation.history import Evaluations
from tfps.evaluation.progressive import judged_labels
from tfps.experiment.mode import Async, Bounded, LocalSGD, Sync
from tfps.export.parameters import StoreParameters
from tfps.export.saved_model import ExportForm, export
from tfps.job_dir import JobDir
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.lease import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.leases.queue import LeaseQueue, QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.async_loop import AsyncLoop, ExchangeLoop
from tfps.worker.barrier_loop import BarrierLoop
from tfps.worker.closures import Closures
from tfps.worker.judge import Judge
from tfps.worker.local_sgd import LocalSgdLoop
from tfps.worker.step import Step
from trainer.chief.exports import predict_sample
from trainer.chief.run_inputs import RunInputs, RunSettings
from trainer.datasets.generation import generate

KEEP_NINE = Retention(9)


class InHalfPrecision:
    """Beside a task: its model computes in float16, so that its loss is scaled."""

    def build_model(self):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            return super().build_model()
        finally:
            keras.config.set_dtype_policy("float32")


def inputs_of(experiment, job_dir, cluster=None, ps_memory=None):
    """What a run is made from, checked."""
    settings = RunSettings(experiment, cluster or Cluster(), JobDir(job_dir), ps_memory)
    return RunInputs.check(settings)


def dataset(directory, records=200, shards=3):
    return generate(get_config(), str(directory), records, shards, 0, 0, "smoke", False)


def save(directory, store, queue, data, before_commit=lambda: None, retention=KEEP_NINE):
    """Saves what a store holds now; returns the checkpoint."""
    old = OldCheckpoints(
        directory, retention, Evaluations(JobDir(posixpath.dirname(directory.path)))
    )
    draft, writer = Draft.of(store, queue, data), CheckpointWriter(store.slices())
    return saver.save(directory, old, draft, writer, before_commit)


def train_with(step):
    """A step as one function of features, labels and seed that returns the loss."""

    @tf.function(autograph=False)
    def train(features, labels, seed):
        return step.train(step.pull(features, labels), seed)

    return train


@dataclasses.dataclass(frozen=True)
class WithOptimizer(Smoke):
    """The smoke model, trained by another optimizer, its tables by a third one if it is given."""

    rule: keras.optimizers.Optimizer | None = None
    tables: keras.optimizers.Optimizer | None = None

    def optimizer(self):
        return self.rule

    def table_optimizer(self, table):
        return self.tables or self.rule


def reused(manifest, parts=2, **settings):
    """A trainer as it is when it is made, which does not trace again what it has traced before.

    Making one and tracing its closures is most of what a test costs. Of each settings there is one
    in a process: whoever asks for it again takes it away from whoever had it before.

    Args:
        manifest: The data.
        parts: Over how many the parameters are.
        settings: The other ones of `Trainer`, hashable.
    """
    return _kept(parts, frozenset(settings.items())).begin_again(manifest)


@functools.lru_cache(maxsize=32)
def _kept(parts, settings):
    return _Kept(parts=parts, **dict(settings))


class _Kept:
    """A trainer, and what its variables held when it was made."""

    def __init__(self, **settings):
        self._trainer = Trainer(None, **settings)
        self._values = [variable.numpy() for variable in self._trainer.variables]

    def begin_again(self, manifest):
        """The trainer on some data, with the values of before all training."""
        for variable, value in zip(self._trainer.variables, self._values, strict=True):
            variable.assign(value)
        for queue in self._trainer.queues():
            for _ in range(int(queue.size())):
                queue.dequeue()
        again = copy.copy(self._trainer)
        again.manifest = manifest
        again.coordinate()
        return again


class Evaluated(NamedTuple):
    """What an evaluation gave."""

    loss: float
    labels: dict
    predictions: dict


class Trainer:
    """A run's parts, in one process, with parameters over several parts as over several ps."""

    def __init__(
        self,
        manifest,
        task=None,
        parts=2,
        seed=0,
        shuffle_buffer=8192,
        max_bad_records=0,
        monitor=None,
        stall_seconds=60,
        locate=None,
        mode=None,
        members=0,
        unroll=1,
        negatives=0,
        judges=False,
        **train,
    ):
        experiment = get_config()
        self.experiment = dataclasses.replace(
            experiment,
            task=task or experiment.task,
            data=dataclasses.replace(
                experiment.data,
                shuffle_buffer=shuffle_buffer,
                max_bad_records=max_bad_records,
                negatives=negatives,
                negatives_of=("token",),
            ),
            train=dataclasses.replace(experiment.train, seed=seed, **train),
            mode=mode or (Sync() if members else Async()),
        )
        self.manifest = manifest
        self.task = self.experiment.task
        self.model = StatelessModel(self.task, seed, self.experiment.train.dense_table_bytes)
        executor = LocalExecutor()
        devices = ["/device:CPU:0"] * parts
        settings = self.experiment.train
        rules = Rules.of(self.task, self.model, settings.row_updates, settings.repeated_ids)
        self._make_parameters(devices, rules, members or lanes_of(executor), bool(members))
        judge = None
        if judges:
            judge = Judge(judged_labels(self.task, self.model.prediction_shapes))
        self.step = Step(self.task, self.model, self.store, settings.jit_compile, judge=judge)
        self.closures = Closures(
            self.experiment,
            self.step,
            self._loop(unroll),
            self.progress,
            executor.worker_index,
            locate or (lambda path: path),
        )
        self.coordinate(monitor, stall_seconds)

    def coordinate(self, monitor=None, stall_seconds=60):
        """Makes a coordinator that has given out no lease."""
        self.monitor = monitor or TaskMonitor({})
        settings, mode = self.experiment.train, self.experiment.mode
        sync_every = mode.sync_every if isinstance(mode, LocalSGD) else 0
        self.coordinator = WorkerCoordinator(
            LocalExecutor(),
            self.closures,
            self.progress,
            self.monitor,
            stall_seconds,
            lambda: mode.unrecorded_batches(settings.pipeline_depth, sync_every),
        )

    def queues(self):
        """What may hold messages of the barrier."""
        if not self.barrier:
            return []
        loop = self.barrier._loop
        contributions = self.barrier._contributions._queues if self.barrier.has_rounds else ()
        return [loop.messages._queue, *loop.tokens.queues, *contributions]

    def _make_parameters(self, devices, rules, lanes, waits):
        """Makes all variables: the parameters, the progress of leases, and a barrier if need be."""
        self.variables = []
        train, mode = self.experiment.train, self.experiment.mode
        power = mode.staleness_power if isinstance(mode, Async) else 0.0
        options = train.seed, train.wire_dtype, power
        with tf.variable_creator_scope(self._make_variable):
            self.store = ParameterStore(self.model, rules, devices, *options)
            self.progress = LeaseProgress(lanes, devices[0])
            self.barrier = self._barrier(lanes) if waits else None

    def _make_variable(self, make, **options):
        self.variables.append(make(**options))
        return self.variables[-1]

    def _loop(self, unroll):
        """The loop of the mode; not unrolled unless asked for, for tracing costs most."""
        mode, depth = self.experiment.mode, self.experiment.train.pipeline_depth
        if self.barrier:
            return BarrierLoop(
                self.step, self.barrier, getattr(mode, "backup_workers", 0) > 0, depth, unroll
            )
        if isinstance(mode, LocalSGD):
            return LocalSgdLoop(self.step, self.store, self.progress, 1, mode.sync_every)
        if isinstance(mode, Async) and mode.batches_per_exchange > 1:
            return ExchangeLoop(self.step, self.progress, mode.batches_per_exchange, unroll)
        return AsyncLoop(self.step, self.progress, depth, unroll=unroll)

    def _barrier(self, members):
        mode = self.experiment.mode
        if isinstance(mode, Bounded):
            lead = mode.max_staleness - self.experiment.train.pipeline_depth
            return BoundedStalenessBarrier(self.store, self.progress, members, lead)
        return SyncBarrier(self.store, self.progress, members, mode.backup_workers)

    def steps(self):
        return self.store.steps()

    def export(self, path, **options):
        """Exports the model, as a run does at its end."""
        parameters = StoreParameters(self.model, self.store)
        sample = predict_sample(self.task, parameters, self.manifest)
        export(self.task, parameters, str(path), sample, ExportForm(**options))

    def evaluate(self):
        """Loss, labels and predictions of all records, together."""
        pieces = pieces_of(self.manifest, self.experiment.train.batch_size)
        results = list(self.coordinator.evaluate(pieces))
        return Evaluated(
            sum(float(result.loss_sum) for result in results) / self.manifest.records,
            *(
                {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                for parts in zip(*(each[1:3] for each in results), strict=True)
            ),
        )

    def queue(self, epochs=1, state=None):
        order, state = EpochOrder.of(self.experiment), state or QueueState()
        data = TrainingData.of(self.manifest)
        bad = BadRecords.of(self.experiment, data, state.bad_records)
        return LeaseQueue(data, order, epochs, state, bad)

    def shards(self):
        return [
            (
                RecordSource(self.manifest.path_of(shard), shard.compression, end=shard.records),
                shard.records,
            )
            for shard in self.manifest.shards
        ]
