"""The chief's outer loop: train to the next checkpoint, save, evaluate; export at the end."""

import logging
import time
from typing import Self

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
from tfps.leases.queue import LeaseQueue
from tfps.leases.queue_state import QueueState
from trainer.chief.engine import Engine
from trainer.chief.evaluations import JobEvaluations
from trainer.chief.inputs import identity
from trainer.chief.run_inputs import RunInputs
from trainer.chief.run_report import RunReport
from trainer.chief.state import ChiefState
from trainer.chief.training_counts import TrainingCounts
from trainer.console.progress_display import ProgressDisplay

_log = logging.getLogger(__name__)


class Training:
    """A run whose tasks are connected: the parameters exist, and the leases wait."""

    def __init__(
        self,
        engine: Engine,
        state: ChiefState,
        ps_calls: PsCalls,
        saver: Saver,
        checkpoint: Checkpoint | None,
    ):
        """Takes the leases from where the checkpoint left off.

        Args:
            engine: Whose parameters are those of the checkpoint.
            state: What outlives this connection.
            ps_calls: Makes the chief's calls of the ps.
            saver: Saves the engine's parameters.
            checkpoint: That the run goes on from; None if it begins.

        Raises:
            UserError: If the checkpoint is one in the middle of an epoch of another order, or knows
                more bad records than there may be.
        """
        self._engine = engine
        self._state = state
        self._ps_calls = ps_calls
        self._saver = saver
        self._checkpoint = checkpoint
        self._inputs = inputs = engine.inputs
        self._train = inputs.experiment.train
        self._store, self._coordinator = engine.store, engine.coordinator
        self._report = state.report
        self._evaluations = JobEvaluations(
            engine, state.report, state.limits.evaluator_wait_seconds, state.trial
        )
        queue_state = checkpoint.queue if checkpoint else QueueState()
        self._queue = LeaseQueue.of(inputs.experiment, inputs.data, queue_state)

    @classmethod
    def prepare(cls, inputs: RunInputs, executor: Executor, state: ChiefState) -> Self:
        """Creates the parameters, restores the newest checkpoint and reports where the run begins.

        Args:
            inputs: What to train, on what.
            executor: Where closures run and parameters lie.
            state: What outlives this connection.

        Raises:
            UserError: If the checkpoint does not fit, or every one is damaged.
            LostPsError: If a ps is lost meanwhile.
        """
        train, stall_seconds = inputs.experiment.train, state.limits.stall_seconds
        ps_calls = PsCalls(state.monitor, stall_seconds)
        engine = ps_calls(
            "creating the parameters",
            lambda: Engine.build(inputs, executor, state.monitor, stall_seconds),
        )
        keep, hours = train.keep_checkpoints, train.keep_checkpoint_hours
        directory = CheckpointDirectory(inputs.job_dir)
        retention = Retention(keep, hours, inputs.best_metric)
        saver = ps_calls(
            "preparing to save",
            lambda: Saver(
                directory,
                OldCheckpoints(directory, retention, Evaluations(inputs.job_dir)),
                engine.store,
                ps_calls,
                train.checkpoint_in_background,
                train.largest_increment,
            ),
        )
        checkpoint = ps_calls(
            "restoring a checkpoint", lambda: _restore(engine, directory, saver, state.report)
        )
        training = cls(engine, state, ps_calls, saver, checkpoint)
        training._begin()
        return training

    def _begin(self) -> None:
        """Takes up what the job has beside its checkpoint, and reports where the run begins."""
        self._evaluations.take_up(self._checkpoint)
        self._state.recoveries.restored(self._queue.trained)
        path = self._checkpoint.path if self._checkpoint else None
        self._report.ready(path, self._counts(), self._state.history())

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
            self._engine.stop()

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
            self._report.stopped_early(reason)
        path = self._inputs.export
        self._ps_calls("exporting the model", lambda: self._inputs.export_model(self._store, path))
        _log.info("exported the model to %s", path)
        self._report.exported(path)
        self._evaluations.finish(self._last())
        self._report.finished(self._counts(), self._state.history())

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
            self._state.poll()
            return self._state.is_asked_to_save or time.monotonic() > due

        with self._state.interruption.deferred():
            self._coordinator.train(self._queue, pause, report, due)
            if self._queue.epoch_finished:
                self._queue.next_epoch()
            self._save()
            if self._state.is_asked_to_save:
                self._saver.finish()
        self._go_on_unless_tasks_change()
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
        data, counts, history = self._inputs.data, self._counts(), self._state.history()

        def may_commit() -> None:
            self._state.fence.confirm()
            shards.refuse_replaced(data.directory, data.shards)

        def tell(checkpoint: Checkpoint) -> None:
            self._checkpoint = checkpoint
            self._report.saved(checkpoint.path, self._saver.report(), counts, history)
            of = f", what was touched since {checkpoint.base.name}" if checkpoint.increment else ""
            _log.info("saved %s: %s%s", checkpoint.path, byte_size.show(checkpoint.size), of)

        # The last one stands alone: it is what people copy.
        is_last = self._queue.finished
        self._saver.begin(self._queue.state(), identity(data), may_commit, tell, is_last)
        self._saver.poll()

    def _go_on_unless_tasks_change(self) -> None:
        """Ends this connection if ps are about to go, or there are other workers to go on with.

        Raises:
            LostPsError: If there are such ps, which hear that all is saved.
            WorkersChangedError: If there are such workers, and there is something left to train.
        """
        if released := self._state.release_ps():
            names = ", ".join(map(str, released))
            indices = tuple(ps.index for ps in released)
            raise LostPsError(f"{names} left, after a checkpoint", indices)
        reason = self._state.take_reason_to_change()
        if reason and not self._queue.finished:
            raise WorkersChangedError(reason)

    def _counts(self) -> TrainingCounts:
        """What changes in the report as the run goes on."""
        return self._ps_calls(
            "reading counters", lambda: TrainingCounts.read(self._engine, self._queue)
        )


def _restore(
    engine: Engine, directory: CheckpointDirectory, saver: Saver, report: RunReport
) -> Checkpoint | None:
    """Restores the newest checkpoint, after which the saver goes on; None if there is none."""
    directory.delete_uncommitted()
    began = time.monotonic()
    dataset = identity(engine.inputs.data)
    checkpoint, passed_over = restore_newest(directory, engine.store, dataset)
    if checkpoint is None:
        return None
    saver.go_on_from(checkpoint)
    trained = f"{checkpoint.queue.trained:,}"
    _log.info("resuming from %s: %s records trained", checkpoint.path, trained)
    report.restored(checkpoint.path, passed_over, time.monotonic() - began)
    return checkpoint
