"""Whether a job goes on, as its files tell it to a job that cannot reach its tasks."""

import logging
import posixpath
import time
from collections.abc import Callable
from typing import Any

from tfps.errors import RunError
from tfps.job_dir import report
from tfps.job_dir.report_fields import FINISHED, RUNNING
from tfps.job_dir.task_usage import REPORT_SECONDS, TaskUsage
from tfps.storage import files
from tfps.storage.failures import StorageError

_TASKS = "tasks"
_log = logging.getLogger(__name__)


class JobWatch:
    """Looks at the report of a job, and at what its tasks tell of themselves.

    Times are of this machine: of the others' files it only matters that they change.
    """

    def __init__(
        self,
        job_dir: str,
        wait_seconds: float,
        lost_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Has heard nothing of the job yet.

        Args:
            job_dir: The directory of the job.
            wait_seconds: How long a job may not run, before its first run or after one that was
                interrupted or failed.
            lost_seconds: How long nothing may be heard of a job that runs, beside the time from one
                report of a task to its next.
            clock: Tells the time in seconds.
        """
        self._job_dir = job_dir
        self._wait_seconds = wait_seconds
        self._lost_seconds = lost_seconds + 2 * REPORT_SECONDS
        self._clock = clock
        self._heard = self._looked = clock()
        self._is_alive = False
        self._told: str | None = RUNNING
        self._fields, _ = self._read_report()
        self._usages = {name: self._content(name) for name in self._usage_files()}

    def has_ended(self) -> bool:
        """Whether the job does no more.

        Raises:
            RunError: If it has not begun in time, or nothing is heard of it any more.
            UserError: If another version of tfps wrote its report.
        """
        fields, status = self._read_report()
        if status == FINISHED:
            return True
        if self._is_heard(fields):
            self._heard, self._is_alive = self._clock(), True
        self._tell(status)
        silent = self._clock() - self._heard
        if status == RUNNING and self._is_alive:
            if silent > self._lost_seconds:
                raise RunError(
                    f"nothing was heard of the job in {self._job_dir} for {silent:.0f} s, and its "
                    "report says that it runs; start both jobs again"
                )
            return False
        if silent <= self._wait_seconds:
            return False
        if status is None or status == RUNNING:
            raise RunError(
                f"the job in {self._job_dir} did not begin within {self._wait_seconds:.0f} s; "
                "start it, or allow more with --chief_wait_seconds"
            )
        return True

    def _tell(self, status: str | None) -> None:
        """Says once what is waited for, of a job that does not run."""
        if status not in (RUNNING, self._told):
            state = "has not begun" if status is None else f"is {status}"
            seconds = self._wait_seconds
            _log.info(
                "the job in %s %s: waiting up to %.0f s for it to run",
                self._job_dir,
                state,
                seconds,
            )
        self._told = status

    def _read_report(self) -> tuple[dict[str, Any] | None, str | None]:
        """The report and the status that it says; None where there is no report to be read."""
        try:
            fields = report.read(self._job_dir, patience=0.0)
        except StorageError:  # what was heard last holds until the limit
            return None, RUNNING if self._is_alive else None
        return fields, None if fields is None else str(fields["status"])

    def _is_heard(self, fields: dict[str, Any] | None) -> bool:
        """Whether a file has changed since the last look, of which few are read at a time."""
        if fields is not None and fields != self._fields:
            self._fields = fields
            return True
        now = self._clock()
        if now - self._looked < REPORT_SECONDS:
            return False
        self._looked = now
        for name in self._usage_files():
            usage = self._content(name)
            if usage is not None and usage != self._usages.get(name):
                self._usages[name] = usage
                return True
        return False

    def _usage_files(self) -> list[str]:
        try:
            names = files.names(posixpath.join(self._job_dir, _TASKS))
        except (FileNotFoundError, StorageError):
            return []
        return [posixpath.join(_TASKS, name) for name in names if name.endswith(TaskUsage.ending)]

    def _content(self, name: str) -> bytes | None:
        try:
            return files.read(posixpath.join(self._job_dir, name), patience=0.0)
        except (FileNotFoundError, StorageError):
            return None
