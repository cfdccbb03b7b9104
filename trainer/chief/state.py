"""What a chief keeps while it connects to its cluster again and again."""

import collections
import dataclasses
import json
import logging
import math
import os
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from tfps.cluster.monitor import Failure, Outage, TaskMonitor
from tfps.coordinator.connector import Connector
from tfps.errors import LostPsError, LostWorkersError, RunError, WorkersChangedError
from tfps.evaluation.history import Evaluation
from tfps.job_dir.chief_fence import ChiefFence
from tfps.job_dir.report import ReportedFailure, ReportedRecovery
from tfps.job_dir.size import Size
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName
from tfps.storage.failures import StaleReadTolerance
from tfps.worker.loop import SyncEvery
from trainer.chief import interruption
from trainer.chief.interruption import Interruption
from trainer.chief.observer import RunObserver
from trainer.chief.resizing import ResizedError, Resizing
from trainer.chief.run_report import RunReport
from trainer.chief.wait_limits import WaitLimits

_ID = "CLOUD_ML_TRIAL_ID"
_FILE = "CLOUD_ML_HP_METRIC_FILE"
_DEFAULT_FILE = "/tmp/hypertune/output.metrics"  # noqa: S108 - where Vertex AI looks
_MOST_LINES = 100
_MOST_WITHOUT_PROGRESS = 5  # recoveries
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


@dataclasses.dataclass
class Recoveries:
    """The recoveries of a run, recorded as it loses parameters, restores them and trains on."""

    made: list[ReportedRecovery] = dataclasses.field(default_factory=list)
    records: int = 0  # that are trained, as far as is known
    in_vain: int = 0  # recoveries since the last trained batch

    def trained(self, examples: int) -> float | None:
        """Records the records trained; returns the recovery's seconds with the first after it."""
        is_more, self.records = examples > self.records, examples
        if not is_more or not self.in_vain:
            return None
        self.in_vain = 0
        last = self.made[-1]
        self.made[-1] = dataclasses.replace(last, seconds=time.time() - last.when)
        return self.made[-1].seconds

    def begin(self, what: str) -> None:
        self.made.append(ReportedRecovery(what, time.time()))
        self.in_vain += 1
        if self.in_vain > _MOST_WITHOUT_PROGRESS:
            raise RunError(
                f"{what}, as {_MOST_WITHOUT_PROGRESS} times before without a batch trained in "
                "between; look at its log, fix what ends it, and start every task again with the "
                "same --job_dir to resume from the last checkpoint"
            )

    def restored(self, examples: int) -> None:
        """Notes how many records the restored parameters were trained on."""
        if self.in_vain:
            last = self.made[-1]
            again = last.records + self.records - examples
            self.made[-1] = dataclasses.replace(last, records=again)
        self.records = examples


@dataclasses.dataclass
class WorkerChanges:
    """Keeps changes of workers apart, since nobody trains during one.

    A change lasts until the next trained batch. The next one may begin after training for some
    times as long, and once those who wait could have trained as much as it costs: soon for one of
    two workers, for one of two hundred when others have come. All who come or go until then are
    part of it.
    """

    began: float | None = None  # of the machine's monotonic clock
    went_on: float | None = None
    examples: int | None = None
    missed: float = 0.0  # seconds of all workers, that those who wait have not trained since then
    looked: float | None = None

    def begin(self) -> None:
        self.began, self.went_on, self.examples = time.monotonic(), None, None
        self.missed, self.looked = 0.0, None

    def trained(self, examples: int) -> None:
        before, self.examples = self.examples, examples
        if before is not None and examples > before and self.went_on is None:
            self.went_on = time.monotonic()

    def seconds_left(self, waiting: float = 0.0) -> float:
        """How long the next change has to wait; 0 if it may begin.

        `waiting` is the part of all workers that could join.
        """
        if self.began is None:
            return 0.0
        now, since, least = time.monotonic(), self.began, _MOST_SECONDS
        if self.went_on is not None:
            since, took = self.went_on, self.went_on - self.began
            self.missed += waiting * (now - max(since, self.looked or since))
            self.looked = now
            if waiting:
                due = now + (took - self.missed) / waiting
                least = min(least, max(_TIMES * took, due - since))
        return max(0.0, since + least - now)


@dataclasses.dataclass
class RestartState:
    """What is known of a run, besides checkpoints, when its program restarts in place.

    It is in an unnamed file that this process has open: an environment variable may not be as long,
    but holds the file's number.
    """

    recoveries: Recoveries = dataclasses.field(default_factory=Recoveries)
    failures: Sequence[Failure] = ()
    began: float = dataclasses.field(default_factory=time.monotonic)
    failures_by_job: Mapping[str, int] = dataclasses.field(default_factory=dict)
    changes: WorkerChanges = dataclasses.field(default_factory=WorkerChanges)

    @classmethod
    def load(cls) -> "RestartState":
        """What the program before left; where there was none, that of a run that begins now."""
        file = int(os.environ.get(_VARIABLE, "-1"))
        if not _is_own(file):  # a program that was started by another one has its environment
            return cls()
        return msgspec.json.decode(os.pread(file, os.fstat(file).st_size, 0), type=cls)

    def save(self) -> None:
        """Leaves it to the program that continues in this process."""
        file = os.memfd_create(_NAME)
        with os.fdopen(file, "wb", closefd=False) as writer:
            writer.write(msgspec.json.encode(self))
        interruption.keep_open(file)
        os.environ[_VARIABLE] = str(file)


def _is_own(file: int) -> bool:
    """Whether a number is that of a file that `save` has made."""
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
    resizing: Resizing
    observer: RunObserver
    sync_every: SyncEvery
    trial: Trial | None = None
    restart: RestartState = dataclasses.field(default_factory=RestartState)
    _leaving: list[TaskName] = dataclasses.field(default_factory=list, init=False)
    _reason_to_change: str = dataclasses.field(default="", init=False)
    new_size: Size | None = dataclasses.field(default=None, init=False)
    _looked: float = dataclasses.field(default=0.0, init=False)
    _of_notices: StaleReadTolerance = dataclasses.field(
        default_factory=StaleReadTolerance, init=False
    )
    _of_size: StaleReadTolerance = dataclasses.field(default_factory=StaleReadTolerance, init=False)
    _announced: str = dataclasses.field(default="", init=False)

    def poll(self) -> None:
        """Looks every few seconds whether a ps is about to go, a worker comes or is given up."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self.fence.check()
            self._leaving = self._of_notices.ask(self.notices.posted, self._leaving)
            is_whole = not (self.monitor.outages() or self.connector.left_out)
            self.new_size = self._of_size.ask(lambda: self.resizing.asked(is_whole), self.new_size)
            self._reason_to_change = self._change_of_workers()

    @property
    def is_asked_to_save(self) -> bool:
        """Whether a signal has arrived, or `poll` has seen something that asks for a checkpoint."""
        return self.interruption.is_requested or bool(
            self._leaving or self.new_size or self._reason_to_change
        )

    def raise_if_nobody_trains(self) -> None:
        """Looks as `poll` does, and has others join at once if all workers are lost."""
        self.poll()
        lost = self.monitor.lost("worker")
        if not lost or not self._are_all_workers(lost):
            return
        if arrived := self.connector.arrivals():
            away, others = (", ".join(map(str, some)) for some in (lost, arrived))
            raise LostWorkersError(f"{away} are lost, and {others} can take over")

    def go_on_unless_tasks_change(self, keeps: bool) -> None:
        """Looks as `poll` does, for work that has nothing to save.

        Work that does not keep what is done would begin again for each worker that comes or goes.
        """
        self.poll()
        self.interruption.raise_if_requested()
        self.observer.look_for_losses(self.monitor.failures)
        self.end_if_tasks_change(may_change_workers=keeps)

    def end_if_tasks_change(
        self, may_resize: bool = True, may_change_workers: bool = True, saved: str = ""
    ) -> None:
        """Ends this connection if ps are about to go, or it is to have other tasks.

        The ps are notified that all is saved: their parameters go, too. `saved` says for the log
        what has been.
        """
        released, self._leaving = self._leaving, []
        for ps in released:
            self.notices.clear(ps)
        if released:
            names = ", ".join(map(str, released))
            raise LostPsError(f"{names} left{saved}", tuple(ps.index for ps in released))
        if self.new_size and may_resize:
            self.resizing.leaving()
            raise ResizedError(self.new_size)
        reason, self._reason_to_change = self._reason_to_change, ""
        if reason and may_change_workers:
            raise WorkersChangedError(reason)

    def trained(self, examples: int) -> None:
        self.restart.changes.trained(examples)
        seconds = self.restart.recoveries.trained(examples)
        if seconds is not None:
            _log.info("training continues, %.1f s after the loss was noticed", seconds)

    def history(self) -> dict[str, Any]:
        """What became of the tasks since the run began: fields of the report."""
        failures, restart = self.monitor.failures, self.restart
        return {
            "seconds": round(time.monotonic() - restart.began, 3),
            "failures": [ReportedFailure(**each.to_json()) for each in failures],
            "failures_by_job": dict(failures.by_job),
            "recoveries": list(restart.recoveries.made),
            "left_out": list(map(str, self.connector.left_out)),
        }

    def update_report(self, **changes: Any) -> None:
        """Writes fields of the report, and what became of the tasks."""
        self.report.update(**changes, **self.history())

    def restart_state(self) -> RestartState:
        """What this program leaves to itself when it begins again."""
        failures = self.monitor.failures
        return dataclasses.replace(
            self.restart, failures=list(failures), failures_by_job=failures.by_job
        )

    def _change_of_workers(self) -> str:
        """Why the run should continue with other workers now, if it should."""
        arrived = self.connector.arrivals()
        joining = f"{', '.join(map(str, arrived))} can join" if arrived else ""
        reason = "; ".join(filter(None, [joining, self._overdue()]))
        all_workers = len(self.connector.workers) + len(self.connector.left_out)
        seconds = self.restart.changes.seconds_left(len(arrived) / max(1, all_workers))
        trains_nobody = self._are_all_workers(self.monitor.outages())  # so a change costs nothing
        if not reason or not seconds or trains_nobody:
            return reason
        if reason != self._announced:
            self._announced = reason
            _log.info("%s; in %.0f s, with who comes or goes until then", reason, seconds)
        return ""

    def _are_all_workers(self, outages: Iterable[Outage]) -> bool:
        return {outage.task for outage in outages}.issuperset(self.connector.workers)

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
