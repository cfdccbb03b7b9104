"""What a chief keeps while it connects to its cluster again and again."""

import collections
import dataclasses
import json
import logging
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from tfps.cluster.monitor import Failure, TaskMonitor
from tfps.coordinator.connector import Connector
from tfps.coordinator.coordinator import Recoveries
from tfps.errors import LostPsError, RunError, WorkersChangedError
from tfps.evaluation.history import Evaluation
from tfps.job_dir.chief_fence import ChiefFence
from tfps.job_dir.report import ReportedFailure
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName
from tfps.storage.failures import StaleReadTolerance
from tfps.worker.loop import SyncEvery
from trainer.chief import interruption
from trainer.chief.interruption import Interruption
from trainer.chief.observer import RunObserver
from trainer.chief.run_report import RunReport, TaskHistory
from trainer.chief.wait_limits import WaitLimits

_ID = "CLOUD_ML_TRIAL_ID"
_FILE = "CLOUD_ML_HP_METRIC_FILE"
_DEFAULT_FILE = "/tmp/hypertune/output.metrics"  # noqa: S108 - where Vertex AI looks
_MOST_LINES = 100
_log = logging.getLogger(__name__)
_TIMES = 4.0  # as long as the last change took, so that all take a fifth of the time at most
_MOST_SECONDS = 1800.0  # a worker that is away may not be kept for an hour: TensorFlow gives up
_VARIABLE = "TFPS_HANDOVER"
_NAME = "tfps-handover"
_LOOK_SECONDS = 2.0


class Trial:
    """Reports metrics as cloudml-hypertune does, for Vertex AI: lines of JSON, all texts."""

    def __init__(self, number: str, path: str):
        self._number = number
        self._path = pathlib.Path(path)
        self._lines: collections.deque[str] = collections.deque(maxlen=_MOST_LINES)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self | None:
        """The trial of this process by its environment variables, None if none."""
        number = environ.get(_ID, "")
        return cls(number, environ.get(_FILE) or _DEFAULT_FILE) if number else None

    def report(self, evaluations: Iterable[Evaluation]) -> None:
        """Adds every metric of some evaluations; a value that is no number is only logged."""
        for evaluation in evaluations:
            for name, value in evaluation.metrics.items():
                if math.isfinite(value):
                    self._lines.append(self._line(name, value, evaluation.steps))
                else:
                    _log.warning("%s is %s: trial %s does not report it", name, value, self._number)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text("".join(f"{line}\n" for line in self._lines))
        except OSError as error:
            raise RunError(
                f"trial {self._number} cannot report its metrics: {error}; set {_FILE} to a file "
                "that can be written"
            ) from None

    def _line(self, name: str, value: float, steps: int) -> str:
        entry = {
            "timestamp": time.time(),
            "trial": self._number,
            name: str(value),
            "global_step": str(steps),
            "checkpoint_path": "",
        }
        return json.dumps(entry, sort_keys=True)


class WorkerChanges:
    """Keeps changes of workers apart, since nobody trains during one.

    A change lasts until the next trained batch. The next one may begin after training for some
    times as long; workers that come or go until then are part of it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._began: float | None = None
        self._went_on: float | None = None
        self._examples: int | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "WorkerChanges":
        """From what `to_json` gave, in the program that goes on."""
        found = cls()
        found._began, found._went_on = data["began"], data["went_on"]
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data, for a program that begins again."""
        return {"began": self._began, "went_on": self._went_on}

    def begin(self) -> None:
        """A change begins."""
        self._began, self._went_on = self._clock(), None

    def trained(self, examples: int) -> None:
        """Notes how many records are trained by now."""
        before, self._examples = self._examples, examples
        if before is not None and examples > before and self._went_on is None:
            self._went_on = self._clock()

    def seconds_left(self) -> float:
        """How long the next change has to wait; 0 if it may begin."""
        if self._began is None:
            return 0.0
        now, since, least = self._clock(), self._began, _MOST_SECONDS
        if self._went_on is not None:
            since, least = self._went_on, min(least, _TIMES * (self._went_on - self._began))
        return max(0.0, since + least - now)


@dataclasses.dataclass(frozen=True)
class RestartState:
    """What is known of a run, besides checkpoints, when its program restarts in place.

    It is in an unnamed file that this process has open: an environment variable may not be as long,
    but holds the file's number. `began` is on the machine's monotonic clock.
    """

    recoveries: Recoveries = dataclasses.field(default_factory=Recoveries)
    failures: Sequence[Failure] = ()
    began: float = dataclasses.field(default_factory=time.monotonic)
    failures_by_job: Mapping[str, int] = dataclasses.field(default_factory=dict)
    changes: WorkerChanges = dataclasses.field(default_factory=WorkerChanges)

    @classmethod
    def found(cls) -> "RestartState":
        """What the program before left; where there was none, that of a run that begins now."""
        file = int(os.environ.get(_VARIABLE, "-1"))
        if not _is_own(file):  # a program that was started by another one has its environment
            return cls()
        data = json.loads(os.pread(file, os.fstat(file).st_size, 0))
        return cls(
            Recoveries.from_json(data["recoveries"]),
            [Failure.from_json(each) for each in data["failures"]],
            data["began"],
            data["failures_by_job"],
            WorkerChanges.from_json(data["changes"]),
        )

    def leave(self) -> None:
        """Leaves it to the program that goes on in this process."""
        data = {
            "recoveries": self.recoveries.to_json(),
            "failures": [each.to_json() for each in self.failures],
            "began": self.began,
            "failures_by_job": dict(self.failures_by_job),
            "changes": self.changes.to_json(),
        }
        file = os.memfd_create(_NAME)
        with os.fdopen(file, "w", closefd=False) as writer:
            json.dump(data, writer)
        interruption.keep_open(file)
        os.environ[_VARIABLE] = str(file)


def _is_own(file: int) -> bool:
    """Whether a number is that of a file that `leave` has made."""
    try:
        return os.readlink(f"/proc/self/fd/{file}").startswith(f"/memfd:{_NAME} ")
    except FileNotFoundError:
        return False


@dataclasses.dataclass
class ChiefState:
    """The part of a run that outlives a lost ps."""

    limits: WaitLimits
    connector: Connector
    monitor: TaskMonitor
    report: RunReport
    fence: ChiefFence
    interruption: Interruption
    notices: PreemptionNotices
    observer: RunObserver
    sync_every: SyncEvery
    trial: Trial | None = None
    recoveries: Recoveries = dataclasses.field(default_factory=Recoveries)
    began: float = dataclasses.field(default_factory=time.monotonic)
    changes: WorkerChanges = dataclasses.field(default_factory=WorkerChanges)
    _leaving: list[TaskName] = dataclasses.field(default_factory=list, init=False)
    _reason_to_change: str = dataclasses.field(default="", init=False)
    _looked: float = dataclasses.field(default=0.0, init=False)
    _patience: StaleReadTolerance = dataclasses.field(
        default_factory=StaleReadTolerance, init=False
    )
    _told: str = dataclasses.field(default="", init=False)

    def poll(self) -> None:
        """Looks every few seconds whether a ps is about to go, a worker comes or is given up."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self.fence.check()
            self._leaving = self._patience.ask(self.notices.posted, self._leaving)
            self._reason_to_change = self._change_of_workers()

    @property
    def is_asked_to_save(self) -> bool:
        """Whether a signal has arrived, or `poll` has seen something that asks for a checkpoint."""
        return self.interruption.is_requested or bool(self._leaving or self._reason_to_change)

    def release_ps(self) -> list[TaskName]:
        """Notifies the leaving ps that all is saved; returns them. Their parameters go, too."""
        released, self._leaving = self._leaving, []
        for ps in released:
            self.notices.clear(ps)
        return released

    def take_reason_to_change(self) -> str:
        """Returns once why the run should go on with other workers; nothing if it need not."""
        reason, self._reason_to_change = self._reason_to_change, ""
        return reason

    def go_on_unless_tasks_change(self) -> None:
        """Looks as `poll` does, for work that has nothing to save."""
        self.poll()
        self.interruption.raise_if_requested()
        self.observer.look_for_losses(self.monitor.failures)
        if released := self.release_ps():
            names = ", ".join(map(str, released))
            raise LostPsError(f"{names} left", tuple(ps.index for ps in released))
        if reason := self.take_reason_to_change():
            raise WorkersChangedError(reason)

    def trained(self, examples: int) -> None:
        """Notes how many records are trained by now."""
        self.changes.trained(examples)
        seconds = self.recoveries.trained(examples)
        if seconds is not None:
            _log.info("training goes on, %.1f s after the loss was noticed", seconds)

    def history(self) -> TaskHistory:
        """What became of the tasks up to now, for the report."""
        failures = self.monitor.failures
        return TaskHistory(
            seconds=round(time.monotonic() - self.began, 3),
            failures=[ReportedFailure(**each.to_json()) for each in failures],
            failures_by_job=dict(failures.by_job),
            recoveries=self.recoveries.report(),
            left_out=list(map(str, self.connector.left_out)),
        )

    def restart_state(self) -> RestartState:
        """What this program leaves to itself when it begins again."""
        failures = self.monitor.failures
        return RestartState(
            recoveries=self.recoveries,
            failures=failures,
            began=self.began,
            failures_by_job=failures.by_job,
            changes=self.changes,
        )

    def _change_of_workers(self) -> str:
        """Why the run should go on with other workers now, if it should."""
        reason = "; ".join(filter(None, [self._arrivals(), self._overdue()]))
        seconds = self.changes.seconds_left()
        if not reason or not seconds or self._is_without_workers():
            return reason
        if reason != self._told:
            self._told = reason
            _log.info("%s; in %.0f s, with who comes or goes until then", reason, seconds)
        return ""

    def _is_without_workers(self) -> bool:
        """Whether nobody trains, so that a change costs nothing."""
        away = {outage.task for outage in self.monitor.outages()}
        return away.issuperset(self.connector.workers)

    def _arrivals(self) -> str:
        arrived = self.connector.arrivals()
        return f"{', '.join(map(str, arrived))} can join" if arrived else ""

    def _overdue(self) -> str:
        """Which lost workers are to be left out."""
        overdue = [
            outage
            for outage in self.monitor.outages()
            if outage.seconds > self.limits.task_wait_seconds
            and outage.task.job == "worker"
            and outage.task not in self.connector.left_out
        ]
        if not overdue or not self.connector.can_do_without([each.task for each in overdue]):
            return ""
        names = ", ".join(map(str, overdue))
        return f"{names} did not come back within {self.limits.task_wait_seconds:.0f} s"
