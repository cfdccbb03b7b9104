"""The chief's outer loop: train to the next checkpoint, save, evaluate; export at the end."""

import logging
import time
from typing import Any

from tfps import byte_size
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore_newest
from tfps.checkpoint.retention import OldCheckpoints, Retention
from tfps.checkpoint.saver import Saver
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import Executor
from tfps.coordinator.progress import Progress
from tfps.data import shards
from tfps.errors import LostPsError, WorkersChangedError
from tfps.evaluation.history import Evaluations
from tfps.export.saved_model import export
from tfps.job_dir.report import FINISHED
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.queue import LeaseQueue
from tfps.leases.queue_state import QueueState
from tfps.storage import retries
from trainer.chief.engine import Engine
from trainer.chief.evaluations import JobEvaluations
from trainer.chief.inputs import identity
from trainer.chief.run_inputs import RunInputs
from trainer.chief.state import ChiefState
from trainer.console.progress_display import ProgressDisplay

_log = logging.getLogger(__name__)


class Training:
    """A run whose tasks are connected: the parameters exist, and the leases wait."""

    def __init__(
        self,
        inputs: RunInputs,
        executor: Executor,
        state: ChiefState,
        stall_seconds: float,
        evaluator_wait_seconds: float,
    ):
        """Creates the parameters and restores the newest checkpoint, if there is one.

        Raises:
            UserError: If the checkpoint does not fit, or every one is damaged.
            LostPsError: If a ps is lost meanwhile.
        """
        train = inputs.experiment.train
        self._inputs = inputs
        self._train = train
        self._state = state
        self._report = state.report
        self._ps_calls = PsCalls(state.monitor, stall_seconds)
        engine = self._ps_calls(
            "creating the parameters",
            lambda: Engine.build(inputs, executor, state.monitor, stall_seconds),
        )
        self._store, self._coordinator = engine.store, engine.coordinator
        self._members, self._stop = engine.members, engine.stop
        keep, hours = train.keep_checkpoints, train.keep_checkpoint_hours
        retention = Retention(keep, hours, inputs.best_metric)
        self._checkpoints = CheckpointDirectory(inputs.job_dir)
        self._old = OldCheckpoints(self._checkpoints, retention, Evaluations(inputs.job_dir))
        self._saver = self._ps_calls("preparing to save", self._prepare_saver)
        self._checkpoint = self._ps_calls("restoring a checkpoint", self._restore)
        self._evaluations = JobEvaluations(
            engine, state.report, evaluator_wait_seconds, self._checkpoint, state.trial
        )
        queue_state = self._checkpoint.queue if self._checkpoint else QueueState()
        order = EpochOrder.of(inputs.experiment)
        bad_records = BadRecords.of(inputs.experiment, inputs.data, queue_state.bad_records)
        self._queue = LeaseQueue(inputs.data, order, train.epochs, queue_state, bad_records)
        state.recoveries.restored(queue_state.trained)
        path = self._checkpoint.path if self._checkpoint else None
        self._report.write(checkpoint=path, **self._counts())

    def run(self, display: ProgressDisplay) -> None:
        """Trains what is left, evaluates after each epoch and exports.

        Args:
            display: Where progress is shown.

        Raises:
            UserError: If a shard cannot be used.
            RunError: If the run cannot go on.
        """
        try:
            self._run(display)
        finally:
            self._stop()

    def _run(self, display: ProgressDisplay) -> None:
        if self._queue.finished:
            _log.info("all %d epochs are trained already", self._train.epochs)
        self._evaluate_resumed()
        reason = self._evaluations.reason_to_stop
        with self._saver:
            while not (self._queue.finished or reason):
                self._train_to_checkpoint(display)
                reason = self._evaluations.reason_to_stop
            self._saver.finish()
        if reason and not self._queue.finished:
            _log.info("stopping early: %s", reason)
            self._report.write(stopped_early=reason)
        path = self._inputs.export
        task, model = self._inputs.experiment.task, self._inputs.model
        self._ps_calls("exporting the model", lambda: export(task, model, self._store, path))
        _log.info("exported the model to %s", path)
        self._report.write(export=path)
        self._evaluations.finish(self._last())
        self._report.write(status=FINISHED, **self._counts())

    def _last(self) -> Checkpoint:
        """The last checkpoint, which holds what the parameters are now."""
        assert self._checkpoint is not None
        return self._checkpoint

    def _evaluate_resumed(self) -> None:
        """Evaluates the checkpoint of an ended epoch if that was not done, or nothing is left."""
        resumed = self._checkpoint
        if resumed is None or resumed.queue.cursor:
            return
        if self._queue.finished or not self._evaluations.has(resumed):
            self._evaluations.update(resumed, has_ended_epoch=True)

    def _prepare_saver(self) -> Saver:
        return Saver(
            self._checkpoints,
            self._old,
            self._store,
            self._ps_calls,
            self._train.checkpoint_in_background,
            self._train.largest_increment,
        )

    def _restore(self) -> Checkpoint | None:
        self._checkpoints.delete_uncommitted()
        began = time.monotonic()
        checkpoint, passed_over = restore_newest(
            self._checkpoints, self._store, identity(self._inputs.data)
        )
        if checkpoint is None:
            return None
        self._saver.go_on_from(checkpoint)
        trained = f"{checkpoint.queue.trained:,}"
        _log.info("resuming from %s: %s records trained", checkpoint.path, trained)
        self._report.write(
            resumed_from=checkpoint.path,
            passed_over=passed_over,
            restore_seconds=round(time.monotonic() - began, 3),
        )
        return checkpoint

    def _train_to_checkpoint(self, display: ProgressDisplay) -> None:
        """Trains until a checkpoint is due or the epoch ends, saves it and has it evaluated."""
        epoch, epochs = self._queue.epoch, self._train.epochs
        records = self._inputs.data.records

        def report(progress: Progress) -> None:
            self._state.trained(progress.examples)
            display.show(progress, records, epochs)
            self._saver.poll()

        due = time.monotonic() + self._train.checkpoint_seconds

        def pause() -> bool:
            return self._state.is_asked_to_save() or time.monotonic() > due

        with self._state.interruption.deferred():
            self._coordinator.train(self._queue, pause, report, due)
            if self._queue.epoch_finished:
                self._queue.next_epoch()
            self._save()
            state = self._state
            if state.interruption.is_requested or state.leaving or state.change_of_workers:
                self._saver.finish()
        self._let_ps_go()
        self._let_workers_change()
        has_ended_epoch = self._queue.epoch > epoch
        if has_ended_epoch:
            display.hide()
            _log.info(
                "epoch %d of %d trained: %s records so far, %s examples/s",
                epoch + 1,
                epochs,
                f"{self._queue.trained:,}",
                f"{self._coordinator.meter.throughput.examples_per_second:,.0f}",
            )
        if has_ended_epoch and self._inputs.eval_data and not self._inputs.cluster.evaluators:
            self._saver.finish()  # the workers evaluate it
        if self._checkpoint:
            self._evaluations.update(self._checkpoint, has_ended_epoch)

    def _save(self) -> None:
        """Begins a checkpoint, once the one before it is there."""
        self._saver.finish()
        data, counts = self._inputs.data, self._counts()

        def may_commit() -> None:
            self._state.fence.confirm()
            shards.refuse_replaced(data.directory, data.shards)

        def tell(checkpoint: Checkpoint) -> None:
            self._checkpoint = checkpoint
            saves = self._saver.report()
            self._report.write(checkpoint=checkpoint.path, checkpoints=saves, **counts)
            of = f", what was touched since {checkpoint.base.name}" if checkpoint.increment else ""
            _log.info("saved %s: %s%s", checkpoint.path, byte_size.show(checkpoint.size), of)

        # The last one stands alone: it is what people copy.
        is_last = self._queue.finished
        self._saver.begin(self._queue.state(), identity(data), may_commit, tell, is_last)
        self._saver.poll()

    def _let_ps_go(self) -> None:
        """Tells the ps that are about to go that all is saved.

        Raises:
            LostPsError: If there are any: with them their parameters go.
        """
        leaving = self._state.leaving
        for ps in leaving:
            self._state.notices.clear(ps)
        if leaving:
            self._state.leaving = []
            names = ", ".join(map(str, leaving))
            raise LostPsError(
                f"{names} left, after a checkpoint", tuple(ps.index for ps in leaving)
            )

    def _let_workers_change(self) -> None:
        """Ends this connection if there are other workers to go on with.

        Raises:
            WorkersChangedError: If there are.
        """
        reason, self._state.change_of_workers = self._state.change_of_workers, ""
        if reason and not self._queue.finished:
            raise WorkersChangedError(reason)

    def _counts(self) -> dict[str, Any]:
        """Fields of the report that change as the run goes on."""
        return {
            "examples": {
                "per_epoch": self._inputs.data.records,
                "trained": self._queue.trained,
                "skipped": self._queue.skipped,
                "repeated": self._queue.repeated,
                "bad": self._queue.bad,
            },
            "bad_records": self._queue.bad_records.report(),
            "workers": self._coordinator.meter.worker_shares.report(),
            "epochs": self._queue.epoch,
            "steps_per_lease": self._coordinator.meter.lease_length.steps,
            "examples_per_second": round(self._coordinator.meter.throughput.examples_per_second, 1),
            "storage_retries": retries.count(),
            **self._ps_calls("reading counters", self._counts_on_ps),
            **self._state.fields(),
        }

    def _counts_on_ps(self) -> dict[str, Any]:
        return {
            "steps": self._store.steps(),
            "staleness": self._store.staleness.report(),
            "loss_scale": self._loss_scale(),
            "rounds": self._members.report() if self._members else None,
        }

    def _loss_scale(self) -> dict[str, Any] | None:
        if self._store.loss_scale is None:
            return None
        scale, skipped = self._store.loss_scale.read()
        return {"scale": scale, "skipped_steps": skipped}
