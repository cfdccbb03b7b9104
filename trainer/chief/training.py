"""The chief's outer loop: train to the next checkpoint, save, evaluate; export at the end."""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

from tfps import byte_size
from tfps.checkpoint.checkpoint import NO_LOSSES, Checkpoint
from tfps.checkpoint.saver import Saver
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.coordinator import TrainingMeter
from tfps.data import shards
from tfps.errors import UserError
from tfps.job_dir.report import FINISHED
from tfps.leases.queue import LeaseQueue, QueueState
from trainer.chief import engine
from trainer.chief.callbacks import Callbacks
from trainer.chief.engine import Engine
from trainer.chief.evaluations import JobEvaluations
from trainer.chief.following import Following
from trainer.chief.forgetting import Forgetting
from trainer.chief.run_exports import RunExports
from trainer.chief.run_inputs import RunInputs
from trainer.chief.run_report import training_counts
from trainer.chief.state import ChiefState
from trainer.console.terminal import ProgressDisplay

_log = logging.getLogger(__name__)


def _callbacks(inputs: RunInputs) -> Callbacks:
    """The callbacks of a run."""
    train = inputs.settings.experiment.train
    steps = {
        sum(-(-shard.records // train.batch_size) for shard in data.shards)
        for data in inputs.data.train.datasets
    }
    params = {
        "verbose": 1,
        "epochs": train.epochs,
        "steps": steps.pop() if len(steps) == 1 else None,
    }
    learning_rate = inputs.plan.rules.dense.config["learning_rate"]
    return Callbacks(inputs.make_callbacks(), learning_rate, params)


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
        self._engine = engine
        self._state = state
        self._ps_calls = ps_calls
        self._saver = saver
        self._checkpoint = checkpoint
        self._inputs = inputs = engine.inputs
        self._train = inputs.settings.experiment.train
        self._store, self._coordinator = engine.store, engine.coordinator
        self._report = state.report
        listeners = [state.observer.evaluated, *([state.trial.report] if state.trial else [])]
        self._evaluations = JobEvaluations(
            engine, state.report, state.limits.task_wait_seconds, listeners
        )
        self._exports = RunExports(engine, self._evaluations, state.report, ps_calls)
        self._callbacks = _callbacks(inputs)
        self._losses = checkpoint.losses if checkpoint else NO_LOSSES
        queue_state = checkpoint.queue if checkpoint else QueueState()
        self._queue = LeaseQueue.of(inputs.settings.experiment, inputs.data.train, queue_state)
        self._forgetting = Forgetting(self._store, checkpoint)
        self._following = Following.of(inputs.data.train, self._queue)

    def _begin(self) -> None:
        """Takes up what the job has beside its checkpoint, and reports where the run begins."""
        self._state.observer.training_began(self._checkpoint, self._queue)
        self._evaluations.take_up(self._checkpoint)
        self._state.restart.recoveries.restored(self._queue.trained)
        path = self._checkpoint.path if self._checkpoint else None
        self._state.update_report(checkpoint=path, **self._counts())
        self._state.resizing.measure(self._coordinator.meter.throughput)

    def run(self, display: ProgressDisplay) -> None:
        """Trains what is left, evaluates after each epoch and exports."""
        try:
            self._run(display)
        finally:
            self._engine.stop()
            if self._following:
                self._following.stop()

    def _run(self, display: ProgressDisplay) -> None:
        self._begin()
        if self._queue.finished:
            _log.info("all %d epochs are trained already", self._train.epochs)
        self._evaluate_resumed()
        trained = [(x, self._evaluations.metrics_after(x)) for x in self._losses.epochs]
        self._callbacks.begin(trained)
        with self._saver:
            while self._goes_on():
                self._callbacks.push_learning_rate(self._store, self._ps_calls)
                self._train_to_checkpoint(display)
            self._saver.finish()
        self._callbacks.end()
        reason = self._reason_to_stop()
        if reason and not self._queue.finished:
            if self._checkpoint is None:
                raise UserError(f"{reason}, before anything was trained")
            _log.info("stopping early: %s", reason)
            self._report.update(stopped_early=reason)
        self._evaluations.finish(self._last())
        self._exports.finish(self._last())
        self._state.update_report(status=FINISHED, **self._counts())

    def _reason_to_stop(self) -> str | None:
        return self._evaluations.reason_to_stop or self._callbacks.reason_to_stop

    def _goes_on(self) -> bool:
        """Whether there is something to train, of which callbacks then know that it begins."""
        if self._queue.finished or self._reason_to_stop():
            return False
        self._callbacks.begin_epoch(self._queue.epoch)
        return not self._reason_to_stop()

    def _last(self) -> Checkpoint:
        """The last checkpoint, which holds what the parameters are now."""
        assert self._checkpoint is not None
        return self._checkpoint

    def _evaluate_resumed(self) -> None:
        """Evaluates the checkpoint of an ended epoch if that was not done, or nothing is left."""
        resumed = self._checkpoint
        if resumed is None or resumed.queue.cursor or self._following:
            return
        if self._queue.finished or not self._evaluations.has(resumed):
            self._evaluations.update(resumed, has_ended_epoch=True)

    def _train_to_checkpoint(self, display: ProgressDisplay) -> None:
        """Trains until a checkpoint is due or the epoch ends, saves it and has it evaluated."""
        begun = self._queue.state()
        observer = self._state.observer

        def poll() -> None:
            self._saver.poll()
            self._exports.poll()

        def report(meter: TrainingMeter) -> None:
            self._state.trained(meter.examples)
            observer.look_for_losses(self._state.monitor.failures)
            observer.progressed(meter, self._queue, self._steps)
            display.show(lambda: observer.board.status(meter))
            poll()
            self._state.raise_if_nobody_trains()

        due = time.monotonic() + self._train.checkpoint_seconds

        def pause() -> bool:
            self._state.poll()
            return self._state.is_asked_to_save or time.monotonic() > due

        with self._state.interruption.deferred():
            has_ended = self._train_leases(pause, report, poll, due)
            observer.paused(self._coordinator.meter, self._queue, self._steps)
            if has_ended or self._queue.state() != begun or self._checkpoint is None:
                self._save(begun.epoch)
            if self._state.is_asked_to_save:
                self._saver.finish()
        has_more = not self._queue.finished
        self._state.end_if_tasks_change(has_more, has_more, ", after a checkpoint")
        if has_ended:
            display.hide()
            _log.info(
                "%s: %s records so far, %s examples/s",
                self._ended(begun.epoch),
                f"{self._queue.trained:,}",
                f"{self._coordinator.meter.throughput.examples_per_second:,.0f}",
            )
            self._end_epoch()
        elif self._checkpoint:
            self._evaluations.update(self._checkpoint, has_ended_epoch=False)

    def _ended(self, epoch: int) -> str:
        """What has just ended, for the log."""
        if self._following:
            return f"{self._queue.epoch} datasets trained, and no other followed"
        data, epochs = self._inputs.data.train, self._train.epochs
        where = f" on {data.of_epoch(epoch).directory}" if len(data.datasets) > 1 else ""
        return f"epoch {epoch + 1} of {epochs} trained{where}"

    def _train_leases(
        self,
        pause: Callable[[], bool],
        report: Callable[[TrainingMeter], None],
        poll: Callable[[], None],
        due: float,
    ) -> bool:
        """Trains until a pause is asked for, and counts the loss; whether the epoch has ended."""
        meter, queue, following = self._coordinator.meter, self._queue, self._following
        loss_sum, trained, seconds = meter.loss_sum, queue.trained, meter.throughput.seconds
        self._coordinator.train(queue, pause, report, due)
        while following and following.await_next(pause, poll):
            self._coordinator.train(queue, pause, report, due)
        self._losses = self._losses.trained(
            meter.loss_sum - loss_sum,
            queue.trained - trained,
            meter.throughput.seconds - seconds,
        )
        if not (following.has_ended if following else queue.epoch_finished):
            return False
        if following:
            queue.end()
        else:
            queue.next_epoch()
        self._losses = self._losses.ended(queue.epoch - 1, self._steps())
        return True

    def _end_epoch(self) -> None:
        """Has the parameters evaluated, and tells callbacks of the epoch that has ended."""
        if self._inputs.data.eval and not self._inputs.settings.evaluator:
            self._saver.finish()  # the workers evaluate it
            self._callbacks.begin_evaluation()
        if self._checkpoint:
            self._evaluations.update(self._checkpoint, has_ended_epoch=True)
        if self._state.observer.wants_parameters(self._queue.epoch):
            measured = engine.measure_parameters(self._engine, self._ps_calls, self._queue.epoch)
            self._state.observer.measured(measured)
        ended = self._losses.epochs[-1]
        self._callbacks.end_epoch(ended, self._evaluations.metrics_after(ended))

    def _save(self, epoch: int) -> None:
        """Begins a checkpoint, after the one before; `epoch` is what has been trained since."""
        self._saver.finish()
        if self._forgetting.is_asked_for:
            steps, records = self._steps(), self._queue.trained
            self._ps_calls(
                "looking for rows to forget", lambda: self._forgetting.forget(steps, records)
            )
        counts, history = self._counts(), self._state.history()
        own_rate = self._callbacks.learning_rate  # before it is that of the next epoch
        following, data = self._following, self._inputs.data.train
        since = following.trained() if following else [data.of_epoch(epoch)]

        def may_commit() -> None:
            self._state.fence.confirm()
            for trained in since:
                shards.refuse_replaced(trained.directory, trained.shards)

        def tell(checkpoint: Checkpoint) -> None:
            self._checkpoint = checkpoint
            if following:
                following.saved(checkpoint.queue.epoch)
            if not is_last:
                self._exports.saved(checkpoint)
            saves = self._saver.report()
            self._report.update(checkpoint=checkpoint.path, checkpoints=saves, **counts, **history)
            observer = self._state.observer
            rate_after = functools.partial(self._learning_rate, own_rate)
            observer.saved(checkpoint, saves, counts["staleness"], rate_after)
            of = f", what was touched since {checkpoint.base.name}" if checkpoint.increment else ""
            _log.info("saved %s: %s%s", checkpoint.path, byte_size.show(checkpoint.size), of)

        # The last one stands alone: it is what people copy.
        is_last = self._queue.finished
        datasets = self._queue.identities()
        is_full = is_last or self._exports.wants_full
        self._saver.begin(
            self._queue.state(),
            datasets,
            may_commit,
            tell,
            is_full,
            self._losses,
            self._exports.delta_base,
        )
        self._saver.poll()

    def _steps(self) -> int:
        """Number of updates of the parameters."""
        return self._ps_calls("reading counters", self._store.steps)

    def _learning_rate(self, own: float | None, steps: int) -> float:
        """The learning rate of the dense parameters after some updates; `own` is the callbacks'."""
        rate = self._inputs.plan.rules.dense.config["learning_rate"]
        if not isinstance(rate, (int, float)):
            return float(rate(steps))
        return float(rate) if own is None else own

    def _counts(self) -> dict[str, Any]:
        """What changes in the report as the run continues."""
        return self._ps_calls(
            "reading counters", lambda: training_counts(self._engine, self._queue)
        )
