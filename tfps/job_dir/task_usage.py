"""What each task of a job takes of its machine, told in the job_dir for the chief to collect."""

import dataclasses
import json
import logging
import os
import posixpath
import threading
import time
from collections.abc import Callable

from tfps.job_dir.task_file import TaskFile
from tfps.job_dir.task_name import TaskName
from tfps.storage import files
from tfps.storage.failures import StorageError

REPORT_SECONDS = 30.0  # on gs:// each report is an object that is written
_MEMORY = "/proc/self/statm"
_log = logging.getLogger(__name__)

Traffic = Callable[[], tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class TaskUsage(TaskFile):
    """What a process takes.

    Attributes:
        at: When it was measured, seconds since 1970, on its machine's clock.
        cpu_seconds: Of all its threads since it began.
    """

    ending = ".usage.json"
    at: float
    memory_bytes: int
    cpu_seconds: float
    sent_bytes: int = 0
    received_bytes: int = 0

    @classmethod
    def own(cls, traffic: Traffic | None = None) -> "TaskUsage":
        """What this process takes now.

        Args:
            traffic: Counts what it has sent to other tasks, and received; None where there is none.
        """
        with open(_MEMORY, encoding="ascii") as file:
            pages = int(file.read().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        sent, received = traffic() if traffic else (0, 0)
        return cls(round(time.time(), 3), memory, round(time.process_time(), 3), sent, received)

    def write(self, job_dir: str, task: TaskName) -> None:
        """Reports it."""
        path = self.path(job_dir, task)
        files.make_directories(posixpath.dirname(path))
        files.write(path, f"{json.dumps(dataclasses.asdict(self))}\n".encode())


def start_reporting(
    job_dir: str, task: TaskName, traffic: Traffic | None = None, seconds: float = REPORT_SECONDS
) -> None:
    """Reports what this process takes until it ends, in a thread of its own."""

    def run() -> None:
        is_told = False
        while True:
            try:
                TaskUsage.own(traffic).write(job_dir, task)
                is_told = False
            except StorageError as error:
                if not is_told:
                    _log.warning("%s; so nobody sees how much memory %s takes", error, task)
                is_told = True
            time.sleep(seconds)

    threading.Thread(target=run, name="usage-report", daemon=True).start()
