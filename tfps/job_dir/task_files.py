"""Small files in which each task of a job reports something of itself, in `JOB_DIR/tasks`."""

import dataclasses
import importlib.metadata
import json
import logging
import os
import platform
import posixpath
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Self

import tensorflow as tf

import tfps
from tfps.errors import UserError
from tfps.job_dir import JobDir, cgroup
from tfps.job_dir.task_name import TaskName
from tfps.storage import files
from tfps.storage.failures import StorageError

_log = logging.getLogger(__name__)
REPORT_SECONDS = 30.0  # on gs:// each report is an object that is written
_MEMORY = "/proc/self/statm"
Traffic = Callable[[], tuple[int, int]]


class PreemptionNotices:
    """`JOB_DIR/leaving`: a file for each task that was asked to end, until the chief has saved.

    Files, since a task that serves cannot call its chief, which gives the tasks of its run.
    """

    def __init__(self, job_dir: JobDir, tasks: Collection[TaskName] = ()):
        self._path = job_dir.leaving
        self._tasks = tasks

    def post(self, task: TaskName) -> None:
        """Says that a task will go."""
        files.make_directories(self._path)
        files.write(self._file(task), b"")

    def clear(self, task: TaskName) -> None:
        """Lets a task go: the parameters are saved."""
        files.remove(self._file(task))  # unless the task itself did, when it began again

    def is_posted(self, task: TaskName) -> bool:
        """Whether a task has said that it will go, and waits."""
        return files.exists(self._file(task))

    def posted(self) -> list[TaskName]:
        """All of the run that have, asked of the storage once.

        There may be others, that ended after the chief of a run which had more tasks.
        """
        try:
            names = files.names(self._path, patience=0.0)
        except FileNotFoundError:
            return []
        return [task for task in map(TaskName.parse, names) if task in self._tasks]

    def _file(self, task: TaskName) -> str:
        return posixpath.join(self._path, task.file_name)


def write(job_dir: JobDir, addresses: Mapping[str, Sequence[str]]) -> None:
    """Records where the tasks of a run are: `HOST:PORT` by job; nothing for one process."""
    by_job = {job: list(some) for job, some in addresses.items()}
    files.replace(job_dir.cluster, json.dumps(by_job, indent=1) + "\n")


def read(job_dir: JobDir) -> dict[TaskName, str]:
    """Where the tasks of a job are, as its last chief has recorded."""
    path = job_dir.cluster
    try:
        by_job = json.loads(files.read(path))
        found = {
            TaskName(job, index): address
            for job, some in by_job.items()
            for index, address in enumerate(some)
        }
        if not all(isinstance(address, str) for address in found.values()):
            raise TypeError("an address is no text")
    except FileNotFoundError:
        raise UserError(f"--job_dir={job_dir} holds no cluster.json: no job runs there") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); start the job again") from None
    return found


class TaskFile:
    """A dataclass whose fields are the JSON of a task's file."""

    ending: ClassVar[str]

    @classmethod
    def path(cls, job_dir: JobDir, task: TaskName) -> str:
        return posixpath.join(job_dir.tasks, f"{task.file_name}{cls.ending}")

    @classmethod
    def read(cls, job_dir: JobDir, task: TaskName) -> Self | None:
        """What a task reported last; None when there is nothing that can be read."""
        try:
            return cls(**json.loads(files.read(cls.path(job_dir, task), patience=0.0)))
        except (FileNotFoundError, StorageError, ValueError, TypeError):
            return None


@dataclasses.dataclass(frozen=True)
class TaskInfo(TaskFile):
    """`JOB_DIR/tasks/JOB-INDEX.json`: what runs a worker or a ps, written when it serves."""

    ending = ".json"
    # of its server; a file with another number than that of the server which answers is older
    incarnation: int
    tensorflow: str
    keras: str
    tfps: str
    python: str
    tasks: dict[str, int]
    host: str
    process: int
    memory_bytes: int
    since: str

    @classmethod
    def own(cls, tasks: Mapping[str, int], incarnation: int, memory_bytes: int) -> "TaskInfo":
        return cls(
            incarnation=incarnation,
            tensorflow=tf.__version__,
            keras=importlib.metadata.version("keras"),
            tfps=tfps.__version__,
            python=platform.python_version(),
            tasks=dict(tasks),
            host=socket.gethostname(),
            process=os.getpid(),
            memory_bytes=memory_bytes,
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )

    def write(self, job_dir: JobDir, task: TaskName) -> None:
        """Writes it in one piece; a job_dir that cannot be written is only warned of."""
        path = self.path(job_dir, task)
        text = json.dumps(dataclasses.asdict(self), indent=1) + "\n"
        try:
            files.make_directories(job_dir.tasks)
            files.replace(path, text, str(self.incarnation))
        except StorageError as error:
            _log.warning("%s; so the chief sees no versions", error)


@dataclasses.dataclass(frozen=True)
class TaskUsage(TaskFile):
    """What a process takes."""

    ending = ".usage.json"
    at: float  # when it was measured, seconds since 1970, on its machine's clock
    memory_bytes: int
    cpu_seconds: float  # of all its threads since it began
    sent_bytes: int = 0
    received_bytes: int = 0
    host: str = ""
    cpus: float = 0.0  # that it may use; 0 in files of before

    @classmethod
    def own(cls, traffic: Traffic | None = None) -> "TaskUsage":
        """What this process takes now; `traffic` counts the bytes it has sent and received."""
        with open(_MEMORY, encoding="ascii") as file:
            pages = int(file.read().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        sent, received = traffic() if traffic else (0, 0)
        return cls(
            at=round(time.time(), 3),
            memory_bytes=memory,
            cpu_seconds=round(time.process_time(), 3),
            sent_bytes=sent,
            received_bytes=received,
            host=socket.gethostname(),
            cpus=_usable_cpus(),
        )

    def write(self, job_dir: JobDir, task: TaskName) -> None:
        files.make_directories(job_dir.tasks)
        content = f"{json.dumps(dataclasses.asdict(self))}\n".encode()
        files.write(self.path(job_dir, task), content)


def _usable_cpus() -> float:
    """The cores that this process may use at a time: the machine's, or its container's share."""
    return min([float(len(os.sched_getaffinity(0))), *cgroup.cpu_limits()])


def start_reporting(
    job_dir: JobDir, task: TaskName, traffic: Traffic | None = None, seconds: float = REPORT_SECONDS
) -> None:
    """Reports what this process takes until it ends, in a thread of its own."""

    def run() -> None:
        is_reported = False
        while True:
            try:
                TaskUsage.own(traffic).write(job_dir, task)
                is_reported = False
            except StorageError as error:
                if not is_reported:
                    _log.warning("%s; so nobody sees how much memory %s takes", error, task)
                is_reported = True
            time.sleep(seconds)

    threading.Thread(target=run, name="usage-report", daemon=True).start()
