"""Small files in which each task of a job tells something of itself, in `JOB_DIR/tasks`."""

import json
import posixpath
from typing import ClassVar, Self

from tfps.job_dir.task_name import TaskName
from tfps.storage import files
from tfps.storage.failures import StorageError


class TaskFile:
    """A dataclass whose fields are the JSON of a task's file."""

    ending: ClassVar[str]

    @classmethod
    def path(cls, job_dir: str, task: TaskName) -> str:
        """Where a task's file is."""
        return posixpath.join(job_dir, "tasks", f"{task.file_name}{cls.ending}")

    @classmethod
    def read(cls, job_dir: str, task: TaskName) -> Self | None:
        """What a task told last; None when there is nothing that can be read."""
        try:
            return cls(**json.loads(files.read(cls.path(job_dir, task), patience=0.0)))
        except (FileNotFoundError, StorageError, ValueError, TypeError):
            return None
