"""What a server says of itself in the job_dir, since it cannot be asked for it."""

import dataclasses
import importlib.metadata
import json
import logging
import os
import platform
import posixpath
import socket
import time
from collections.abc import Mapping

import tensorflow as tf

import tfps
from tfps.job_dir.task_file import TaskFile
from tfps.job_dir.task_name import TaskName
from tfps.storage import atomic_file, files
from tfps.storage.failures import StorageError

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TaskInfo(TaskFile):
    """`JOB_DIR/tasks/JOB-INDEX.json`: what runs a worker or a ps, written when it serves.

    Attributes:
        incarnation: The number that its server gave itself; a file whose number is not that of the
            server which answers is of an earlier one.
    """

    ending = ".json"
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
        """That of this process."""
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

    def write(self, job_dir: str, task: TaskName) -> None:
        """Writes it in one piece; a job_dir that cannot be written is only warned of."""
        path = self.path(job_dir, task)
        text = json.dumps(dataclasses.asdict(self), indent=1) + "\n"
        try:
            files.make_directories(posixpath.dirname(path))
            atomic_file.write(path, text, str(self.incarnation))
        except StorageError as error:
            _log.warning("%s; so the chief sees no versions", error)
