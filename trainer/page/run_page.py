"""Leaves the page of a job in its directory when a run ends."""

import logging
import posixpath

from tfps.errors import UserError
from tfps.monitoring.events import RunEnded, RunEvent

FILE = "report.html"
_log = logging.getLogger(__name__)


class RunPage:
    """Writes JOB_DIR/report.html at a run's end, from what others have written by then.

    It is to be told of the end, and flushed, after those who keep the job's history.
    """

    name = "the page"

    def __init__(self, job_dir: str):
        self._job_dir = job_dir
        self._is_due = False

    def tell(self, event: RunEvent) -> None:
        """Takes note of the end."""
        self._is_due = self._is_due or isinstance(event, RunEnded)

    def flush(self) -> None:
        """Writes the page, once the run has ended."""
        if not self._is_due:
            return
        # Loaded here: a run that trains needs none of it.
        from trainer.page import page
        from trainer.page.job_record import JobRecord

        try:
            page.write([JobRecord.read(self._job_dir)], posixpath.join(self._job_dir, FILE))
        except UserError as error:
            _log.warning("the run's page is not written: %s", error)
        self._is_due = False
