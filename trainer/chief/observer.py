"""Tells whoever watches a run what the chief sees of it."""

import time
from collections.abc import Callable, Iterable, Sequence

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.cluster.monitor import Failure, Failures
from tfps.coordinator.coordinator import Progress, WorkerShares
from tfps.evaluation.history import Evaluation
from tfps.job_dir.report import SaveCounts, StalenessCounts
from tfps.leases.queue import LeaseQueue
from tfps.monitoring.events import (
    CheckpointSaved,
    EpochTrained,
    Evaluated,
    ParametersMeasured,
    RunBegan,
    RunEnded,
    RunEvent,
    Sampled,
    TaskBack,
    TaskLost,
    TrainingBegan,
)
from tfps.monitoring.recorder import RunRecorder
from trainer.chief.run_inputs import RunInputs
from trainer.chief.settings import settings_of, tables_of, without_secret
from trainer.chief.status_board import StatusBoard

SAMPLE_SECONDS = 10.0
_Single = EpochTrained | Evaluated | TaskBack | TaskLost  # what is told once


class RunObserver:
    """Makes events of what happens, each once, also where a chief begins again.

    What a chief before this one has told it knows by the job's history.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        board: StatusBoard,
        past: Iterable[RunEvent] = (),
        sample_seconds: float = SAMPLE_SECONDS,
        histograms_every: int = 0,
        stop: Callable[[], None] | None = None,
    ):
        """Has told nothing yet.

        Args:
            past: What was told by chiefs of the job before this one.
            histograms_every: Epochs after which it is to be told what the parameters are; 0: never.
        """
        self.board = board
        self._stop = stop
        self._recorder = recorder
        self._tell = recorder.tell
        self._sample_seconds = sample_seconds
        self._histograms_every = histograms_every
        self._told = _Told(past)
        self._examples, self._loss_sum = 0, 0.0  # up to the last progress; since the last sample
        self._epoch = 0  # of the last progress
        self._sampled = (0, time.monotonic())  # examples, when
        self._away: dict[int, Failure] = {}  # by identity of the entry, while they are away
        self._seen_failures = 0

    def began(self, inputs: RunInputs, overrides: Sequence[str] = ()) -> None:
        """Says that a chief has begun to work on the job."""
        cluster = inputs.cluster
        self._tell(
            RunBegan(
                at=time.time(),
                config=inputs.experiment.name,
                mode=inputs.mode.name,
                workers=len(cluster.workers),
                ps=len(cluster.ps),
                settings=settings_of(inputs.experiment),
                overrides=tuple(map(without_secret, overrides)),
                tables=tables_of(inputs.layout),
            )
        )

    def training_began(self, checkpoint: Checkpoint | None, queue: LeaseQueue) -> None:
        """Says where the training begins.

        Args:
            checkpoint: That it goes on from; None if it begins.
            queue: Its leases, of which none is given out.
        """
        event = TrainingBegan(
            at=time.time(),
            checkpoint=checkpoint.path if checkpoint else None,
            epoch=queue.epoch,
            examples=queue.trained,
            steps=checkpoint.steps if checkpoint else 0,
        )
        self._told.note(event)
        self._tell(event)
        self._examples, self._loss_sum = queue.trained, 0.0
        self._sampled = queue.trained, time.monotonic()

    def progressed(
        self,
        progress: Progress,
        queue: LeaseQueue,
        workers: WorkerShares,
        steps: Callable[[], int],
    ) -> None:
        """Notes how far the training is, and takes a sample of it every few seconds."""
        if progress.loss is not None:
            self._loss_sum += progress.loss * (progress.examples - self._examples)
        self.board.note(progress)
        self._examples = progress.examples
        self._epoch = progress.epoch
        if time.monotonic() - self._sampled[1] >= self._sample_seconds:
            self._sample(queue, workers, steps)

    def paused(self, queue: LeaseQueue, workers: WorkerShares, steps: Callable[[], int]) -> None:
        """Takes a sample where training pauses, so that there is one of a short run, too."""
        if self._examples > self._sampled[0]:
            self._sample(queue, workers, steps)

    def _sample(self, queue: LeaseQueue, workers: WorkerShares, steps: Callable[[], int]) -> None:
        """Tells how far the training was at the last progress."""
        examples, then = self._sampled
        new, seconds = self._examples - examples, time.monotonic() - then
        event = Sampled(
            at=time.time(),
            epoch=self._epoch,
            examples=self._examples,
            steps=steps(),
            loss=self._loss_sum / new if new > 0 else None,
            examples_per_second=max(0, new) / seconds if seconds > 0 else 0.0,
            repeated=queue.repeated,
            bad=queue.bad,
            workers=tuple(workers.report()),
            leases=workers.lease_times,
        )
        self._loss_sum, self._sampled = 0.0, (self._examples, time.monotonic())
        self._tell(event)

    def saved(
        self,
        checkpoint: Checkpoint,
        saves: SaveCounts,
        staleness: StalenessCounts,
        rate: Callable[[int], float | None],
    ) -> None:
        """Says that a checkpoint is committed, and of epochs that have ended with it.

        Args:
            rate: The learning rate at a number of updates, None where it is not known.
        """
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
            if self._told.knows_epoch(epoch.number):
                continue
            event = EpochTrained(
                at=time.time(),
                epoch=epoch.number,
                steps=epoch.steps,
                loss=epoch.loss,
                learning_rate=rate(epoch.steps),
                steps_per_second=steps / epoch.seconds if epoch.seconds > 0 else None,
            )
            self._tell_new(event)

    def evaluated(self, evaluations: Iterable[Evaluation]) -> None:
        """Tells of evaluations that nobody was told of."""
        for evaluation in evaluations:
            event = Evaluated(
                at=time.time(),
                epoch=evaluation.epoch,
                steps=evaluation.steps,
                metrics=evaluation.metrics,
                has_ended_epoch=evaluation.has_ended_epoch,
            )
            self._tell_new(event)

    def wants_parameters(self, epoch: int) -> bool:
        """Whether it is to be told what the parameters are after so many epochs."""
        return self._histograms_every > 0 and epoch % self._histograms_every == 0

    def measured(self, event: ParametersMeasured) -> None:
        """Says what the parameters are."""
        self._tell(event)

    def look_for_losses(self, failures: Failures) -> None:
        """Tells of tasks that were lost, or are back, since it was called last."""
        total = sum(failures.by_job.values())
        new = min(total - self._seen_failures, len(failures))
        self._seen_failures = total
        for failure in list(failures)[len(failures) - new :]:
            self._away[id(failure)] = failure
            self._tell_new(TaskLost(at=failure.when, task=str(failure.task), what=failure.what))
        for key, failure in list(self._away.items()):
            if failure.back_after is not None:
                del self._away[key]
                at = failure.when + failure.back_after
                self._tell_new(TaskBack(at=at, task=str(failure.task), seconds=failure.back_after))

    def ended(self, status: str, error: str | None = None) -> None:
        """Says how the run has ended."""
        self._tell(RunEnded(at=time.time(), status=status, error=error))

    def close(self) -> None:
        """Has all that was told written; nothing more is told."""
        self._recorder.close()
        if self._stop:
            self._stop()

    def _tell_new(self, event: _Single) -> None:
        if self._told.is_new(event):
            self._tell(event)


class _Told:
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
