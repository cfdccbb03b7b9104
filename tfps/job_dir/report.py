"""`JOB_DIR/report.json`: what a run did. `docs/report.md` documents every field."""

import json
import logging
import posixpath
from typing import Any

from tfps.errors import UserError
from tfps.job_dir.chief_fence import ChiefFence
from tfps.storage import atomic_file, files

FILE = "report.json"
FORMAT = 2
RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed", "interrupted"
_log = logging.getLogger(__name__)


class Report:
    """The report of one run, rewritten whenever it changes, so that others can follow the run."""

    def __init__(self, job_dir: str, fence: ChiefFence, **fields: Any):
        self._job_dir = job_dir
        self._fence = fence
        self._fields = {"format": FORMAT, "status": RUNNING, **fields}

    def write(self, **fields: Any) -> None:
        """Updates fields and writes the file in one piece.

        Raises:
            SupersededError: If the job_dir is another chief's by now.
            StorageError: If it cannot be written.
        """
        self._fence.check()
        self._fields.update(fields)
        _write(self._job_dir, self._fields)


def reopen(job_dir: str) -> None:
    """Says that a job runs again, where a report says that its chief will do no more.

    For tasks that ask so before the new chief has all that a report of its own holds.

    Raises:
        UserError: If another version of tfps wrote the report.
        StorageError: If it cannot be read or written.
    """
    fields = read(job_dir)
    if fields is not None and fields["status"] != RUNNING:
        _write(job_dir, {**fields, "status": RUNNING})


def read(job_dir: str, patience: float | None = None) -> dict[str, Any] | None:
    """The report of a job, None when it has none yet.

    A file that is empty or cut off, as a power cut can leave it, is none: the next run writes it
    anew, and nothing depends on the old one.

    Args:
        job_dir: The job's.
        patience: As of `files.read`.

    Raises:
        UserError: If another version of tfps wrote it.
        StorageError: If the storage does not answer.
    """
    path = posixpath.join(job_dir, FILE)
    try:
        fields = json.loads(files.read(path, patience))
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.warning("%s is empty or damaged and counts as none: %s", path, error)
        return None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise UserError(f"{path} is not a report of this version; delete it")
    return fields


def _write(job_dir: str, fields: dict[str, Any]) -> None:
    atomic_file.write(posixpath.join(job_dir, FILE), json.dumps(fields, indent=1) + "\n")
