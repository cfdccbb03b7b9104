"""Puts together how far a run is, for whoever shows it."""

import threading
from collections.abc import Callable, Iterator, Mapping

from tfps.coordinator.coordinator import Progress, WorkerShares
from tfps.job_dir.report import WorkerShare
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.live_view.status import UP, RunStatus, TaskStatus
from tfps.monitoring.events import RunEvent, TasksMeasured
from trainer.chief.run_inputs import RunInputs


class StatusBoard:
    """Knows how far the training is, and how each task of the job is."""

    name = "the live view"

    def __init__(self, inputs: RunInputs, states: Callable[[], Mapping[TaskName, str]]):
        self._inputs = inputs
        self._states = states
        self._total = inputs.data.records_before(inputs.experiment.train.epochs)
        self._loss: float | None = None
        self._lock = threading.Lock()
        self._usages: dict[str, TaskUsage] = {}  # by name of the task; told in another thread
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

    def note(self, progress: Progress) -> None:
        """Takes note of the loss, which not every progress has."""
        self._loss = self._loss if progress.loss is None else progress.loss

    def status(self, progress: Progress, shares: WorkerShares) -> RunStatus:
        """How far the run is."""
        inputs, rate = self._inputs, progress.examples_per_second
        data = inputs.data
        with self._lock:
            tasks = tuple(self._tasks(shares.report()))
        return RunStatus(
            config=inputs.experiment.name,
            mode=inputs.mode.name,
            epoch=progress.epoch + 1,
            epochs=inputs.experiment.train.epochs,
            records=progress.examples - data.records_before(progress.epoch),
            records_of_epoch=data.of_epoch(progress.epoch).records,
            examples_per_second=rate,
            loss=self._loss,
            seconds_left=max(0, self._total - progress.examples) / rate if rate > 0 else None,
            tasks=tasks,
        )

    def _tasks(self, shares: list[WorkerShare]) -> Iterator[TaskStatus]:
        cluster, states = self._inputs.cluster, self._states()
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
