"""The chief's outer loop: train an epoch, save, evaluate; export at the end."""

import logging
import posixpath
import time
from collections.abc import Callable
from typing import Any

from tfps.checkpoint import CheckpointDirectory
from tfps.closures import Closures
from tfps.coordinator import Coordinator, Progress, slots
from tfps.data import shard_files
from tfps.data.record_source import RecordSource
from tfps.epoch_order import EpochOrder
from tfps.errors import LostPsError
from tfps.executor import Executor
from tfps.export import export
from tfps.lease_queue import LeaseQueue, QueueState
from tfps.ps_calls import PsCalls
from tfps.report import FINISHED
from tfps.step import Step
from tfps.storage import retries
from tfps.store.parameter_store import ParameterStore
from tfps.task_metrics import task_metrics
from trainer.chief_state import ChiefState
from trainer.inputs import identity
from trainer.progress_display import ProgressDisplay
from trainer.run_inputs import RunInputs

_log = logging.getLogger(__name__)


class Training:
    """A run whose tasks are connected: the parameters exist, and the leases wait."""

    def __init__(
        self, inputs: RunInputs, executor: Executor, state: ChiefState, stall_seconds: float
    ):
        """Creates the parameters and restores the newest checkpoint, if there is one.

        Raises:
            UserError: If the checkpoint does not fit.
            LostPsError: If a ps is lost meanwhile.
        """
        train = inputs.experiment.train
        self._inputs = inputs
        self._train = train
        self._state = state
        self._report = state.report
        self._ps_calls = PsCalls(state.watch, stall_seconds)
        self._store = self._ps_calls(
            "creating the parameters",
            lambda: ParameterStore(
                inputs.model,
                inputs.rules,
                executor.devices,
                train.seed,
                slots(executor),
                train.wire_dtype,
            ),
        )
        self._coordinator = self._coordinate(executor, stall_seconds)
        self._checkpoints = CheckpointDirectory(inputs.job_dir, train.keep_checkpoints)
        order = EpochOrder.of(inputs.experiment)
        queue_state = self._ps_calls("restoring a checkpoint", self._restore)
        self._queue = LeaseQueue(inputs.data, order, train.epochs, queue_state)
        state.recoveries.restored(queue_state.trained)

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
        task, model = self._inputs.experiment.task, self._inputs.model
        self._ps_calls("exporting the model", lambda: export(task, model, self._store, path))
        _log.info("exported the model to %s", path)
        self._report.write(status=FINISHED, export=path, **self._counts())

    def _coordinate(self, executor: Executor, stall_seconds: float) -> Coordinator:
        inputs, train = self._inputs, self._train
        # One GPU or none needs no names: TensorFlow places what it can on the GPU.
        gpus = [f"/device:GPU:{k}" for k in range(executor.gpus)] if executor.gpus > 1 else [""]
        task, model = inputs.experiment.task, inputs.model
        step = Step(task, model, self._store, train.jit_compile, gpus)
        closures = Closures(
            inputs.experiment,
            step,
            self._store.progress,
            model.prediction_names,
            executor.worker_index,
            locate=inputs.staged.locate,
        )
        progress, watch = self._store.progress, self._state.watch
        return Coordinator(executor, closures, progress, watch, train, stall_seconds)

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

        def report(progress: Progress) -> None:
            self._state.trained(progress.examples)
            display.show(progress, records, epochs)

        while self._queue.epoch == epoch:
            pause = self._pause()
            with self._state.interruption.deferred():
                self._coordinator.train(self._queue, pause, report)
                if self._queue.epoch_finished:
                    self._queue.next_epoch()
                self._save()
            self._let_ps_go()
        display.hide()
        _log.info(
            "epoch %d of %d trained: %s records so far, %s examples/s",
            epoch + 1,
            epochs,
            f"{self._queue.trained:,}",
            f"{self._coordinator.throughput.examples_per_second:,.0f}",
        )

    def _pause(self) -> Callable[[], bool]:
        """A condition that becomes true when a checkpoint is to be saved."""
        due = time.monotonic() + self._train.checkpoint_seconds
        return lambda: time.monotonic() > due or self._state.is_asked_to_save()

    def _save(self) -> None:
        data = self._inputs.data

        def may_commit() -> None:
            self._state.fence.check()
            shard_files.refuse_replaced(data.directory, data.shards)

        checkpoint = self._ps_calls(
            "saving a checkpoint",
            lambda: self._checkpoints.save(
                self._store, self._queue.state(), identity(data), may_commit
            ),
        )
        self._report.write(checkpoint=checkpoint.path, **self._counts())

    def _let_ps_go(self) -> None:
        """Tells the ps that are about to go that all is saved.

        Raises:
            LostPsError: If there are any: with them their parameters go.
        """
        leaving = self._state.leaving
        for ps in leaving:
            self._state.departures.withdraw(ps)
        if leaving:
            self._state.leaving = []
            raise LostPsError(f"{', '.join(leaving)} left, after a checkpoint", tuple(leaving))

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
        self._state.evaluations.append({"epoch": self._queue.epoch, **metrics})
        self._report.write(metrics=metrics, **self._state.fields())

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
            "steps_per_lease": self._coordinator.lease_length.steps,
            "examples_per_second": round(self._coordinator.throughput.examples_per_second, 1),
            "storage_retries": retries.count(),
            **self._ps_calls("reading counters", self._counts_on_ps),
            **self._state.fields(),
        }

    def _counts_on_ps(self) -> dict[str, Any]:
        return {
            "steps": self._store.steps(),
            "staleness": self._store.staleness.report(),
            "loss_scale": self._loss_scale(),
        }

    def _loss_scale(self) -> dict[str, Any] | None:
        if self._store.loss_scale is None:
            return None
        scale, skipped = self._store.loss_scale.read()
        return {"scale": scale, "skipped_steps": skipped}
