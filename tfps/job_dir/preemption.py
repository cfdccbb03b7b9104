"""Ps that are about to go: they say so, and wait until the chief has saved what they hold."""

import posixpath

from tfps.job_dir.task_name import TaskName
from tfps.storage import files


class PreemptionNotices:
    """`JOB_DIR/leaving`: a file for each ps that was told to end, until the chief has saved.

    Files, since a task that serves cannot call its chief.
    """

    def __init__(self, job_dir: str):
        self._path = posixpath.join(job_dir, "leaving")

    def post(self, ps: TaskName) -> None:
        """Says that a ps will go."""
        files.make_directories(self._path)
        files.write(self._file(ps), b"")

    def clear(self, ps: TaskName) -> None:
        """Lets a ps go: its parameters are saved."""
        files.remove(self._file(ps))  # unless the ps itself did, when it began again

    def is_posted(self, ps: TaskName) -> bool:
        """Whether a ps has said that it will go, and waits."""
        return files.exists(self._file(ps))

    def posted(self) -> list[TaskName]:
        """All that have, asked of the storage once."""
        try:
            names = files.names(self._path, patience=0.0)
        except FileNotFoundError:
            return []
        return [TaskName.parse(name) for name in names]

    def _file(self, ps: TaskName) -> str:
        return posixpath.join(self._path, ps.file_name)
