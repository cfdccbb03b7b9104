"""`JOB_DIR/report.json`: what a run did. `docs/report.md` documents every field."""

import json
import posixpath
from typing import Any

import tensorflow as tf

from tfps import whole_file
from tfps.errors import UserError
from tfps.fence import Fence

FILE = "report.json"
FORMAT = 2
RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed", "interrupted"


class Report:
    """The report of one run, rewritten whenever it changes, so that others can follow the run."""

    def __init__(self, job_dir: str, fence: Fence, **fields: Any):
        self._job_dir = job_dir
        self._fence = fence
        self._fields = {"format": FORMAT, "status": RUNNING, **fields}

    def write(self, **fields: Any) -> None:
        """Updates fields and writes the file in one piece.

        Raises:
            SupersededError: If the job_dir is another chief's by now.
        """
        self._fence.check()
        self._fields.update(fields)
        _write(self._job_dir, self._fields)


def reopen(job_dir: str) -> None:
    """Says that a job runs again, where a report says that its chief will do no more.

    For tasks that ask so before the new chief has all that a report of its own holds.

    Raises:
        UserError: If the file is not a report.
    """
    fields = read(job_dir)
    if fields is not None and fields["status"] != RUNNING:
        _write(job_dir, {**fields, "status": RUNNING})


def read(job_dir: str) -> dict[str, Any] | None:
    """The report of a job, None when it has none yet.

    Raises:
        UserError: If the file is not a report.
    """
    path = posixpath.join(job_dir, FILE)
    if not tf.io.gfile.exists(path):
        return None
    try:
        with tf.io.gfile.GFile(path) as file:
            fields = json.load(file)
    except ValueError as error:
        raise UserError(f"{path} is not a report ({error}); delete it") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise UserError(f"{path} is not a report of this version; delete it")
    return fields


def _write(job_dir: str, fields: dict[str, Any]) -> None:
    whole_file.write(posixpath.join(job_dir, FILE), json.dumps(fields, indent=1) + "\n")
