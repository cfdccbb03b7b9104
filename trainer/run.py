"""The chief's work, from an experiment to a report: the trainer's composition root."""

import dataclasses
import logging
import platform
import posixpath
import time
import zlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tfps import manifest as manifests
from tfps import strategy
from tfps.checkpoint import Checkpoint, CheckpointDirectory
from tfps.closures import Closures
from tfps.cluster import Cluster
from tfps.coordinator import Coordinator, Progress, slots
from tfps.errors import UserError
from tfps.executor import Executor, LocalExecutor
from tfps.experiment import Experiment
from tfps.export import export
from tfps.lease import leases_of_epoch
from tfps.lease_queue import LeaseQueue, QueueState
from tfps.manifest import Manifest
from tfps.model import StatelessModel
from tfps.report import FAILED, FINISHED, INTERRUPTED, Report
from tfps.step import Step
from tfps.store import update_rule
from tfps.store.parameter_store import ParameterStore
from tfps.task_watch import TaskWatch
from trainer.progress_display import ProgressDisplay

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Limits of the chief's waits.

    Attributes:
        connect_seconds: For workers and ps to be reachable at the start.
        stall_seconds: For the next batch, anywhere in the cluster.
    """

    connect_seconds: float = 120.0
    stall_seconds: float = 600.0


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived.

    Attributes:
        signal: Its number.
    """

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


class Run:
    """Trains, evaluates after each epoch, saves checkpoints, exports and reports."""

    def __init__(
        self,
        experiment: Experiment,
        cluster: Cluster,
        job_dir: str,
        options: RunOptions,
        display: ProgressDisplay,
    ):
        """Checks everything that can be checked before another task is needed.

        Raises:
            UserError: If the data, the model, an optimizer or the job_dir cannot be used.
        """
        self._experiment = experiment
        self._cluster = cluster
        self._job_dir = job_dir
        self._options = options
        self._display = display
        self._began = time.monotonic()
        self._data = _read_data(experiment, experiment.data.train, "--train_data")
        self._eval_data = None
        if experiment.data.eval:
            self._eval_data = _read_data(experiment, experiment.data.eval, "--eval_data")
        _check_writable(job_dir)
        task = experiment.task
        self._model = StatelessModel(task, experiment.train.seed)
        self._rules = (
            update_rule.from_optimizer(task.optimizer()),
            update_rule.from_optimizer(task.table_optimizer()),
        )
        self._watch = TaskWatch({} if cluster.is_local else strategy.peers(cluster))
        self._report = Report(job_dir, **self._constants())

    def run(self) -> None:
        """Does it all.

        Raises:
            UserError: If what is found on the way cannot be used.
            RunError: If the run cannot go on.
            Interrupted: When a signal asks to stop.
        """
        self._report.write()
        try:
            self._train_and_evaluate()
        except Interrupted:
            self._report.write(status=INTERRUPTED)
            raise
        except Exception as error:
            self._report.write(status=FAILED, error=str(error), failures=self._failures())
            raise
        finally:
            self._watch.stop()

    def _train_and_evaluate(self) -> None:
        executor = self._connect()
        self._watch.start()
        train = self._experiment.train
        self._store = ParameterStore(
            self._model, self._rules, executor.devices, train.seed, slots(executor)
        )
        step = Step(self._experiment.task, self._model, self._store)
        self._coordinator = Coordinator(
            executor,
            Closures(self._experiment, step, self._store.progress),
            self._store.progress,
            self._watch,
            train.batch_size,
            self._options.stall_seconds,
        )
        self._checkpoints = CheckpointDirectory(self._job_dir, train.keep_checkpoints)
        self._queue = LeaseQueue(self._leases, train.epochs, self._restore())
        if self._queue.finished:
            _log.info("all %d epochs are trained already", train.epochs)
            self._evaluate()
        while not self._queue.finished:
            self._train_epoch()
            self._evaluate()
        path = posixpath.join(self._job_dir, "export")
        export(self._experiment.task, self._model, self._store, path)
        _log.info("exported the model to %s", path)
        self._report.write(status=FINISHED, export=path, **self._counts())

    def _connect(self) -> Executor:
        if self._cluster.is_local:
            return LocalExecutor()
        workers, ps = len(self._cluster.workers), len(self._cluster.ps)
        _log.info("waiting for %d workers and %d ps", workers, ps)
        executor = strategy.connect(self._cluster, self._options.connect_seconds)
        _log.info("connected to %d workers and %d ps", workers, ps)
        return executor

    def _restore(self) -> QueueState:
        self._checkpoints.delete_uncommitted()
        checkpoint = self._checkpoints.latest()
        if checkpoint is None:
            return QueueState()
        self._checkpoints.restore(checkpoint, self._store, _identity(self._data))
        state = checkpoint.queue
        _log.info(
            "resuming from %s: epoch %d, %d records trained",
            checkpoint.path,
            state.epoch + 1,
            state.trained,
        )
        self._report.write(resumed_from=checkpoint.path, checkpoint=checkpoint.path)
        return state

    def _train_epoch(self) -> None:
        """Trains the rest of an epoch, with a checkpoint whenever one is due and at its end."""
        epoch, epochs = self._queue.epoch, self._experiment.train.epochs
        records = self._data.records
        saved_at = time.monotonic()

        def checkpoint_is_due() -> bool:
            return time.monotonic() - saved_at > self._experiment.train.checkpoint_seconds

        def show(progress: Progress) -> None:
            self._display.show(progress, records, epochs)

        while True:
            self._coordinator.train(self._queue, checkpoint_is_due, show)
            if self._queue.epoch_finished:
                break
            self._save()
            saved_at = time.monotonic()
        self._queue.next_epoch()
        self._save()
        _log.info(
            "epoch %d of %d trained: %s records so far, %s examples/s",
            epoch + 1,
            epochs,
            f"{self._queue.trained:,}",
            f"{self._coordinator.throughput.examples_per_second:,.0f}",
        )

    def _save(self) -> Checkpoint:
        checkpoint = self._checkpoints.save(self._store, self._queue.state(), _identity(self._data))
        self._report.write(checkpoint=checkpoint.path, **self._counts())
        return checkpoint

    def _evaluate(self) -> None:
        if self._eval_data is None:
            return
        shards = [
            (self._eval_data.path_of(s), s.records) for s in self._eval_data.shards if s.records
        ]
        result = self._coordinator.evaluate(shards)
        metrics = {"loss": result.loss}
        for name, metric in self._experiment.task.metrics().items():
            metrics[name] = float(np.asarray(metric(result.labels, result.predictions)))
        text = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        _log.info("evaluation after epoch %d: %s", self._queue.epoch, text)
        self._evaluations.append({"epoch": self._queue.epoch, **metrics})
        self._report.write(metrics=metrics, evaluations=self._evaluations)

    def _leases(self, epoch: int) -> list:
        paths = [self._data.path_of(shard) for shard in self._data.shards]
        return leases_of_epoch(self._data.shards, paths, epoch, self._experiment.train.seed)

    def _constants(self) -> dict[str, Any]:
        """Fields of the report that do not change, and the start of those that do."""
        self._evaluations: list[dict[str, Any]] = []
        train = self._experiment.train
        return {
            "mode": "local" if self._cluster.is_local else "async",
            "config": self._experiment.name,
            "cluster": {"workers": len(self._cluster.workers), "ps": len(self._cluster.ps)},
            "versions": {
                "tfps": tfps.__version__,
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
                "python": platform.python_version(),
            },
            "batch_size": train.batch_size,
            "examples": {
                "per_epoch": self._data.records,
                "trained": 0,
                "skipped": 0,
                "repeated": 0,
            },
            "epochs": 0,
            "steps": 0,
            "seconds": 0.0,
            "examples_per_second": 0.0,
            "metrics": {},
            "evaluations": [],
            "best_auc": self._eval_data.best_auc if self._eval_data else None,
            "failures": [],
            "resumed_from": None,
            "checkpoint": None,
            "export": None,
        }

    def _counts(self) -> dict[str, Any]:
        """Fields of the report that change as the run goes on."""
        trained = self._queue.trained
        return {
            "examples": {
                "per_epoch": self._data.records,
                "trained": trained,
                "skipped": max(0, self._queue.epoch * self._data.records - trained),
                "repeated": self._queue.repeated,
            },
            "epochs": self._queue.epoch,
            "steps": self._store.steps(),
            "seconds": round(time.monotonic() - self._began, 3),
            "examples_per_second": round(self._coordinator.throughput.examples_per_second, 1),
            "failures": self._failures(),
        }

    def _failures(self) -> list[dict[str, Any]]:
        return [dataclasses.asdict(failure) for failure in self._watch.failures]


def _read_data(experiment: Experiment, directory: str, flag: str) -> Manifest:
    if not directory:
        raise UserError(f"{flag} is missing: name the directory that trainer.prepare wrote")
    manifest = manifests.read(directory, flag)
    manifests.check_schema(manifest, experiment.task, flag)
    if not manifest.records:
        raise UserError(f"{flag}={directory} holds no records")
    return manifest


def _identity(data: Manifest) -> dict[str, Any]:
    """What tells one dataset from another, wherever it lies."""
    checksums = " ".join(shard.crc32c for shard in data.shards)
    return {
        "records": data.records,
        "shards": len(data.shards),
        "checksums": zlib.crc32(checksums.encode()),
    }


def _check_writable(job_dir: str) -> None:
    probe = posixpath.join(job_dir, ".writable")
    try:
        tf.io.gfile.makedirs(job_dir)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
        tf.io.gfile.remove(probe)
    except tf.errors.OpError as error:
        raise UserError(
            f"--job_dir={job_dir} cannot be written ({error.message}); name a directory that every "
            "task can write"
        ) from None
