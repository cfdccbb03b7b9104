"""Reports what the chief sees of a run."""

import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.cluster.monitor import Failure, Failures
from tfps.coordinator.coordinator import TrainingMeter
from tfps.data.followed_data import RunData
from tfps.evaluation.history import Evaluation
from tfps.experiment.experiment import Experiment
from tfps.job_dir.report import SaveCounts, StalenessCounts, WorkerShare
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.leases.queue import LeaseQueue
from tfps.live_view.status import UP, RunStatus, TaskStatus
from tfps.monitoring.events import (
    CheckpointSaved,
    EpochTrained,
    Evaluated,
    ParametersMeasured,
    RunBegan,
    RunEnded,
    RunEvent,
    SpeedMeasured,
    TableSize,
    TaskBack,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)
from tfps.monitoring.recorder import RunRecorder
from tfps.store.layout import StoreLayout
from trainer.chief.run_inputs import RunSettings

# Tokens are words as well: max_tokens is no secret.
_SECRET = re.compile(
    r"secret|passw|credential|(api|access|private)_?key|(api|access|auth|bearer)_?token",
    re.IGNORECASE,
)
_HIDDEN = "(not shown)"
SAMPLE_SECONDS = 10.0
_Single = EpochTrained | Evaluated | TaskBack | TaskLost  # reported once


class StatusBoard:
    """Knows how far the training is, and how each task of the job is."""

    name = "the live view"

    def __init__(
        self,
        settings: RunSettings,
        data: RunData,
        states: Callable[[], Mapping[TaskName, str]],
    ):
        self._settings = settings
        self._data = data
        self._states = states
        self._total = data.records_in(settings.experiment.train.epochs)
        self._lock = threading.Lock()
        self._usages: dict[str, TaskUsage] = {}  # by name of the task; reported in another thread
        self._cores: dict[str, float] = {}

    def tell(self, event: RunEvent) -> None:
        """Takes note of what the tasks take of their machines."""
        if not isinstance(event, TasksMeasured):
            return
        with self._lock:
            for name, usage in event.tasks.items():
                before = self._usages.get(name)
                if before and before.at < usage.at and before.cpu_seconds <= usage.cpu_seconds:
                    seconds = usage.at - before.at
                    self._cores[name] = (usage.cpu_seconds - before.cpu_seconds) / seconds
                self._usages[name] = usage

    def flush(self) -> None:
        """Nothing is to be written."""

    def status(self, meter: TrainingMeter) -> RunStatus:
        data, rate = self._data, meter.throughput.examples_per_second
        with self._lock:
            tasks = tuple(self._tasks(meter.worker_shares.report()))
        records, of_epoch = data.progress(meter.epoch, meter.examples)
        left = None if self._total is None else max(0, self._total - meter.examples)
        return RunStatus(
            config=self._settings.experiment.name,
            mode=self._settings.mode.name,
            epoch=meter.epoch + 1,
            epochs=None if data.is_followed else self._settings.experiment.train.epochs,
            records=records,
            records_of_epoch=of_epoch,
            examples_per_second=rate,
            loss=meter.loss,
            seconds_left=left / rate if left is not None and rate > 0 else None,
            tasks=tasks,
        )

    def _tasks(self, shares: list[WorkerShare]) -> Iterator[TaskStatus]:
        cluster, states = self._settings.cluster, self._states()
        total = sum(share.records for share in shares)
        own = [cluster.task] if cluster.job == "chief" else []
        evaluators = [TaskName("evaluator", index) for index in range(len(cluster.evaluators))]
        # Where there are no ps the chief trains as well, and is the first.
        training = [*([] if cluster.ps else own), *(t for t in states if t.job == "worker")]
        by_task = dict(zip(training, shares, strict=False))
        for task in dict.fromkeys([*own, *states, *evaluators]):
            share, usage = by_task.get(task), self._usages.get(str(task))
            yield TaskStatus(
                name=task.label,
                state=states.get(task, UP),
                share=share.records / total if share and total else None,
                idle=share.idle_share if share else None,
                memory_bytes=usage.memory_bytes if usage else None,
                cores=self._cores.get(str(task)),
            )


def settings_of(experiment: Experiment) -> dict[str, str]:
    """An experiment's fields without possible secrets; nothing of a task that is no dataclass."""
    mode = experiment.mode
    parts = {"task": experiment.task, "data": experiment.data, "train": experiment.train}
    found = {"mode.name": mode.name if mode else ""} | {
        f"{name}.{field.name}": str(getattr(part, field.name))
        for name, part in {**parts, "mode": mode}.items()
        if dataclasses.is_dataclass(part)
        for field in dataclasses.fields(part)
    }
    return {name: _HIDDEN if _SECRET.search(name) else value for name, value in found.items()}


def without_secret(override: str) -> str:
    """`field=value`, without the value where the field's name says that it is a secret."""
    field, _, _ = override.partition("=")
    return f"{field}={_HIDDEN}" if _SECRET.search(field) else override


def tables_of(layout: StoreLayout) -> tuple[TableSize, ...]:
    """The tables of a model, in the order of their groups."""
    return tuple(
        TableSize(
            table.name,
            table.rows,
            table.dim,
            table.rows * group.row.bytes,
        )
        for group in layout.groups
        for table in group.layout.tables
    )


class RunObserver:
    """Reports events once each; those of earlier chiefs it knows from the job's history."""

    def __init__(
        self,
        recorder: RunRecorder,
        board: StatusBoard,
        past: Iterable[RunEvent] = (),
        sample_seconds: float = SAMPLE_SECONDS,
        histograms_every: int = 0,
        stop: Callable[[], None] | None = None,
    ):
        self.board = board
        self._stop = stop
        self._recorder = recorder
        self._tell = recorder.tell
        self._sample_seconds = sample_seconds
        self._histograms_every = histograms_every
        self._reported = _Reported(past)
        self._away: dict[int, Failure] = {}  # by identity of the entry, while they are away
        self._seen_failures = 0

    def began(
        self, settings: RunSettings, layout: StoreLayout, overrides: Sequence[str] = ()
    ) -> None:
        cluster = settings.cluster
        self._tell(
            RunBegan(
                at=time.time(),
                config=settings.experiment.name,
                mode=settings.mode.name,
                workers=len(cluster.workers),
                ps=len(cluster.ps),
                settings=settings_of(settings.experiment),
                overrides=tuple(map(without_secret, overrides)),
                tables=tables_of(layout),
            )
        )

    def training_began(self, checkpoint: Checkpoint | None, queue: LeaseQueue) -> None:
        """Reports where the training begins; `checkpoint` is None for a new one."""
        event = TrainingBegan(
            at=time.time(),
            checkpoint=checkpoint.path if checkpoint else None,
            epoch=queue.epoch,
            examples=queue.trained,
            steps=checkpoint.steps if checkpoint else 0,
        )
        self._reported.note(event)
        self._tell(event)

    def progressed(self, meter: TrainingMeter, queue: LeaseQueue, steps: Callable[[], int]) -> None:
        """Takes a sample every few seconds."""
        if meter.since_sample()[2] >= self._sample_seconds:
            self._tell(meter.sample(queue, steps()))

    def paused(self, meter: TrainingMeter, queue: LeaseQueue, steps: Callable[[], int]) -> None:
        """Takes a sample where training pauses, so that there is one of a short run, too."""
        if meter.since_sample()[0] > 0:
            self._tell(meter.sample(queue, steps()))

    def saved(
        self,
        checkpoint: Checkpoint,
        saves: SaveCounts,
        staleness: StalenessCounts,
        rate: Callable[[int], float | None],
    ) -> None:
        """Reports a committed checkpoint and epochs ended with it; `rate` by updates, or None."""
        self._tell(
            CheckpointSaved(
                at=time.time(),
                name=checkpoint.name,
                examples=checkpoint.queue.trained,
                steps=checkpoint.steps,
                saves=saves,
                staleness=staleness,
            )
        )
        before = 0
        for epoch in checkpoint.losses.epochs:
            steps, before = epoch.steps - before, epoch.steps
            if self._reported.knows_epoch(epoch.number):
                continue
            event = EpochTrained(
                at=time.time(),
                epoch=epoch.number,
                steps=epoch.steps,
                loss=epoch.loss,
                learning_rate=rate(epoch.steps),
                steps_per_second=steps / epoch.seconds if epoch.seconds > 0 else None,
            )
            self._add_new(event)

    def evaluated(self, evaluations: Iterable[Evaluation]) -> None:
        """Reports evaluations not reported yet."""
        for evaluation in evaluations:
            event = Evaluated(
                at=time.time(),
                epoch=evaluation.epoch,
                steps=evaluation.steps,
                metrics=evaluation.metrics,
                has_ended_epoch=evaluation.has_ended_epoch,
            )
            self._add_new(event)

    def wants_parameters(self, epoch: int) -> bool:
        """Whether parameters are measured after some number of epochs."""
        return self._histograms_every > 0 and epoch % self._histograms_every == 0

    def measured(self, event: ParametersMeasured | SpeedMeasured) -> None:
        self._tell(event)

    def look_for_losses(self, failures: Failures) -> None:
        """Tells of tasks that were lost, or are back, since it was called last."""
        total = sum(failures.by_job.values())
        new = min(total - self._seen_failures, len(failures))
        self._seen_failures = total
        for failure in list(failures)[len(failures) - new :]:
            self._away[id(failure)] = failure
            self._add_new(TaskLost(at=failure.when, task=str(failure.task), what=failure.what))
        for key, failure in list(self._away.items()):
            if failure.back_after is not None:
                del self._away[key]
                at = failure.when + failure.back_after
                self._add_new(TaskBack(at=at, task=str(failure.task), seconds=failure.back_after))

    def ended(self, status: str, error: str | None = None) -> None:
        self._tell(RunEnded(at=time.time(), status=status, error=error))

    def close(self) -> None:
        """Has all reported events written; takes no more."""
        self._recorder.close()
        if self._stop:
            self._stop()

    def _add_new(self, event: _Single) -> None:
        if self._reported.is_new(event):
            self._tell(event)


class _Reported:
    """What those who watch the job know, less what was given up when a run went back."""

    def __init__(self, past: Iterable[RunEvent]):
        self._known: dict[tuple[object, ...], _Single] = {}
        for event in past:
            if isinstance(event, TrainingBegan):
                self.note(event)
            elif isinstance(event, _Single):
                self.is_new(event)

    def note(self, event: TrainingBegan) -> None:
        """Forgets the epochs and evaluations that are given up."""
        self._known = {
            key: known
            for key, known in self._known.items()
            if isinstance(known, (TaskLost, TaskBack)) or known.steps <= event.steps
        }

    def knows_epoch(self, number: int) -> bool:
        """Whether they know that an epoch, counted from 0, is trained."""
        return (EpochTrained.kind, number) in self._known

    def is_new(self, event: _Single) -> bool:
        """Whether nobody knows it yet; from now on they do."""
        if isinstance(event, EpochTrained):
            key: tuple[object, ...] = event.kind, event.epoch
        elif isinstance(event, Evaluated):
            key = event.kind, event.epoch, event.steps
        else:
            key = event.kind, event.task, event.at
        is_new = key not in self._known
        self._known[key] = event
        return is_new
