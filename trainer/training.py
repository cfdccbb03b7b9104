"""The chief's outer loop: train an epoch, save, evaluate; export at the end."""

import dataclasses
import logging
import posixpath
import time
from collections.abc import Callable
from typing import Any

from tfps.checkpoint import CheckpointDirectory
from tfps.closures import Closures
from tfps.coordinator import Coordinator, slots
from tfps.data import shard_files
from tfps.data.record_source import RecordSource
from tfps.epoch_order import EpochOrder
from tfps.executor import Executor
from tfps.export import export
from tfps.lease_queue import LeaseQueue, QueueState
from tfps.report import FINISHED, Report
from tfps.step import Step
from tfps.storage import retries
from tfps.store.parameter_store import ParameterStore
from tfps.task_metrics import task_metrics
from tfps.task_watch import TaskWatch
from trainer.inputs import identity
from trainer.progress_display import ProgressDisplay
from trainer.run_inputs import RunInputs

_log = logging.getLogger(__name__)


class Training:
    """A run whose tasks are connected: the parameters exist, and the leases wait."""

    def __init__(
        self,
        inputs: RunInputs,
        executor: Executor,
        watch: TaskWatch,
        report: Report,
        stall_seconds: float,
    ):
        """Creates the parameters and restores the newest checkpoint, if there is one.

        Raises:
            UserError: If the checkpoint does not fit.
        """
        experiment = inputs.experiment
        train = experiment.train
        self._inputs = inputs
        self._train = train
        self._watch = watch
        self._report = report
        self._began = time.monotonic()
        self._evaluations: list[dict[str, Any]] = []
        model = inputs.model
        self._store = ParameterStore(
            model, inputs.rules, executor.devices, train.seed, slots(executor), train.wire_dtype
        )
        # One GPU or none needs no names: TensorFlow places what it can on the GPU.
        gpus = [f"/device:GPU:{k}" for k in range(executor.gpus)] if executor.gpus > 1 else [""]
        step = Step(experiment.task, model, self._store, train.jit_compile, gpus)
        self._coordinator = Coordinator(
            executor,
            Closures(
                experiment,
                step,
                self._store.progress,
                model.prediction_names,
                executor.worker_index,
                locate=inputs.staged.locate,
            ),
            self._store.progress,
            watch,
            train,
            stall_seconds,
        )
        self._checkpoints = CheckpointDirectory(inputs.job_dir, train.keep_checkpoints)
        order = EpochOrder.of(experiment)
        self._queue = LeaseQueue(inputs.data, order, train.epochs, self._restore())

    def run(self, display: ProgressDisplay) -> None:
        """Trains what is left, evaluates after each epoch and exports.

        Args:
            display: Where progress is shown.

        Raises:
            UserError: If a shard cannot be used.
            RunError: If the run cannot go on.
        """
        if self._queue.finished:
            _log.info("all %d epochs are trained already", self._train.epochs)
            self._evaluate()
        while not self._queue.finished:
            self._train_epoch(display)
            self._evaluate()
        path = posixpath.join(self._inputs.job_dir, "export")
        export(self._inputs.experiment.task, self._inputs.model, self._store, path)
        _log.info("exported the model to %s", path)
        self._report.write(status=FINISHED, export=path, **self._counts())

    def _restore(self) -> QueueState:
        self._checkpoints.delete_uncommitted()
        checkpoint = self._checkpoints.latest()
        if checkpoint is None:
            return QueueState()
        self._checkpoints.restore(checkpoint, self._store, identity(self._inputs.data))
        state = checkpoint.queue
        _log.info("resuming from %s: %s records trained", checkpoint.path, f"{state.trained:,}")
        self._report.write(resumed_from=checkpoint.path, checkpoint=checkpoint.path)
        return state

    def _train_epoch(self, display: ProgressDisplay) -> None:
        """Trains the rest of an epoch, with a checkpoint whenever one is due and at its end."""
        epoch, epochs = self._queue.epoch, self._train.epochs
        records = self._inputs.data.records
        while not self._queue.epoch_finished:
            self._coordinator.train(
                self._queue,
                pause=_after(self._train.checkpoint_seconds),
                report=lambda progress: display.show(progress, records, epochs),
            )
            if not self._queue.epoch_finished:
                self._save()
        display.hide()
        self._queue.next_epoch()
        self._save()
        _log.info(
            "epoch %d of %d trained: %s records so far, %s examples/s",
            epoch + 1,
            epochs,
            f"{self._queue.trained:,}",
            f"{self._coordinator.throughput.examples_per_second:,.0f}",
        )

    def _save(self) -> None:
        data = self._inputs.data
        checkpoint = self._checkpoints.save(
            self._store,
            self._queue.state(),
            identity(data),
            before_commit=lambda: shard_files.refuse_replaced(data.directory, data.shards),
        )
        self._report.write(checkpoint=checkpoint.path, **self._counts())

    def _evaluate(self) -> None:
        data = self._inputs.eval_data
        if data is None:
            return
        shards = [
            (RecordSource(data.path_of(shard), shard.compression), shard.records)
            for shard in data.shards
            if shard.records
        ]
        result = self._coordinator.evaluate(shards)
        task = self._inputs.experiment.task
        metrics = {"loss": result.loss, **task_metrics(task, result.labels, result.predictions)}
        text = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        _log.info("evaluation after epoch %d: %s", self._queue.epoch, text)
        self._evaluations.append({"epoch": self._queue.epoch, **metrics})
        self._report.write(metrics=metrics, evaluations=self._evaluations)

    def _counts(self) -> dict[str, Any]:
        """Fields of the report that change as the run goes on."""
        return {
            "examples": {
                "per_epoch": self._inputs.data.records,
                "trained": self._queue.trained,
                "skipped": self._queue.skipped,
                "repeated": self._queue.repeated,
            },
            "workers": self._coordinator.worker_shares.report(),
            "epochs": self._queue.epoch,
            "steps": self._store.steps(),
            "staleness": self._store.staleness.report(),
            "steps_per_lease": self._coordinator.lease_length.steps,
            "loss_scale": self._loss_scale(),
            "seconds": round(time.monotonic() - self._began, 3),
            "examples_per_second": round(self._coordinator.throughput.examples_per_second, 1),
            "failures": [dataclasses.asdict(failure) for failure in self._watch.failures],
            "storage_retries": retries.count(),
        }

    def _loss_scale(self) -> dict[str, Any] | None:
        if self._store.loss_scale is None:
            return None
        scale, skipped = self._store.loss_scale.read()
        return {"scale": scale, "skipped_steps": skipped}


def _after(seconds: float) -> Callable[[], bool]:
    """A condition that becomes true after some seconds."""
    due = time.monotonic() + seconds
    return lambda: time.monotonic() > due
