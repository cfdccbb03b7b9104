"""What a chief keeps while it connects to its cluster again and again."""

import dataclasses
import logging
import time

from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.connector import Connector
from tfps.coordinator.coordinator import Recoveries
from tfps.errors import LostPsError, WorkersChangedError
from tfps.job_dir.chief_fence import ChiefFence
from tfps.job_dir.report import ReportedFailure
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName
from tfps.storage.failures import Patience
from tfps.worker.loop import SyncEvery
from trainer.chief.handover import RestartState
from trainer.chief.interruption import Interruption
from trainer.chief.observer import RunObserver
from trainer.chief.run_report import RunReport, TaskHistory
from trainer.chief.trial import Trial
from trainer.chief.wait_limits import WaitLimits
from trainer.chief.worker_changes import WorkerChanges

_LOOK_SECONDS = 2.0
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class ChiefState:
    """The part of a run that no lost ps takes away.

    Attributes:
        fence: Whether this chief is still the one that counts.
        trial: Of a tuning job, None for any other run.
        began: When the run did, on the monotonic clock.
    """

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
    _patience: Patience = dataclasses.field(default_factory=Patience, init=False)
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
        """Tells the ps that are about to go that all they hold is saved, and returns which.

        With them their parameters go.
        """
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
            if outage.seconds > self.limits.worker_wait_seconds
            and outage.task.job == "worker"
            and outage.task not in self.connector.left_out
        ]
        if not overdue or not self.connector.can_do_without([each.task for each in overdue]):
            return ""
        names = ", ".join(map(str, overdue))
        return f"{names} did not come back within {self.limits.worker_wait_seconds:.0f} s"
