"""A dataset and an experiment, small enough to train within a test."""

import dataclasses
import posixpath

import tensorflow as tf

from configs.smoke import get_config
from tfps.barrier.bounded_staleness import BoundedStalenessBarrier
from tfps.barrier.rounds import SyncBarrier
from tfps.checkpoint import saver
from tfps.checkpoint.checkpoint import Draft
from tfps.checkpoint.retention import OldCheckpoints, Retention
from tfps.checkpoint.writer import CheckpointWriter
from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.executor import LocalExecutor
from tfps.coordinator.lanes import lanes_of
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.data.record_source import RecordSource
from tfps.evaluation.history import Evaluations
from tfps.experiment.mode import BOUNDED, LOCAL_SGD
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.leases.queue import LeaseQueue
from tfps.leases.queue_state import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore
from tfps.worker.async_loop import AsyncLoop
from tfps.worker.barrier_loop import BarrierLoop
from tfps.worker.closures import Closures
from tfps.worker.local_sgd import LocalSgdLoop
from tfps.worker.step import Step
from trainer.generate import generate

KEEP_NINE = Retention(9)


def dataset(directory, records=200, shards=3):
    return generate(get_config(), str(directory), records, shards, 0, 0, "smoke", False)


def save(directory, store, queue, data, before_commit=lambda: None, retention=KEEP_NINE):
    """Saves what a store holds now; returns the checkpoint."""
    old = OldCheckpoints(directory, retention, Evaluations(posixpath.dirname(directory.path)))
    draft, writer = Draft.of(store, queue, data), CheckpointWriter(store.slices())
    return saver.save(directory, old, draft, writer, before_commit)


def train_with(step):
    """A step as one function of features, labels and seed that returns the loss."""

    @tf.function(autograph=False)
    def train(features, labels, seed):
        return step.train(step.pull(features, labels), seed)

    return train


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
        **train,
    ):
        experiment = get_config()
        self.experiment = dataclasses.replace(
            experiment,
            task=task or experiment.task,
            data=dataclasses.replace(
                experiment.data, shuffle_buffer=shuffle_buffer, max_bad_records=max_bad_records
            ),
            train=dataclasses.replace(experiment.train, seed=seed, **train),
            mode=mode or experiment.mode,
        )
        self.manifest = manifest
        self.task = self.experiment.task
        self.model = StatelessModel(self.task, seed, self.experiment.train.dense_table_bytes)
        executor = LocalExecutor()
        devices = ["/device:CPU:0"] * parts
        rules = Rules.of(self.task, self.model)
        settings = self.experiment.train
        self.store = ParameterStore(
            self.model,
            rules,
            devices,
            seed,
            settings.wire_dtype,
            self.experiment.mode.staleness_power,
        )
        self.progress = LeaseProgress(members or lanes_of(executor), devices[0])
        self.barrier = self._barrier(members) if members else None
        self.step = Step(self.task, self.model, self.store, settings.jit_compile)
        self.closures = Closures(
            self.experiment,
            self.step,
            self._loop(unroll),
            self.progress,
            executor.worker_index,
            locate or (lambda path: path),
        )
        self.monitor = monitor or TaskMonitor({})
        self.coordinator = WorkerCoordinator(
            executor,
            self.closures,
            self.progress,
            self.monitor,
            stall_seconds,
            self.experiment.mode.unrecorded_batches(settings.pipeline_depth),
        )

    def _loop(self, unroll):
        """The loop of the mode; not unrolled unless asked for, for tracing costs most."""
        mode, depth = self.experiment.mode, self.experiment.train.pipeline_depth
        if self.barrier:
            return BarrierLoop(self.step, self.barrier, mode.backup_workers > 0, unroll=unroll)
        if mode.name == LOCAL_SGD:
            return LocalSgdLoop(self.step, self.store, self.progress, 1, mode.sync_every)
        return AsyncLoop(self.step, self.progress, depth, unroll=unroll)

    def _barrier(self, members):
        mode = self.experiment.mode
        if mode.name == BOUNDED:
            return BoundedStalenessBarrier(self.store, self.progress, members, mode.max_staleness)
        return SyncBarrier(self.store, self.progress, members, mode.backup_workers)

    def steps(self):
        return self.store.steps()

    def queue(self, epochs=1, state=None):
        order, state = EpochOrder.of(self.experiment), state or QueueState()
        bad = BadRecords.of(self.experiment, self.manifest, state.bad_records)
        return LeaseQueue(self.manifest, order, epochs, state, bad)

    def shards(self):
        return [
            (
                RecordSource(self.manifest.path_of(shard), shard.compression, end=shard.records),
                shard.records,
            )
            for shard in self.manifest.shards
        ]
