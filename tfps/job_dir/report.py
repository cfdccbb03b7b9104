"""`JOB_DIR/report.json`: what a run did, for whoever follows it."""

import json
import logging
import posixpath
from collections.abc import Mapping
from typing import Any

from tfps.errors import UserError
from tfps.job_dir.report_fields import FORMAT, RUNNING, Report
from tfps.storage import atomic_file, files

FILE = "report.json"
_log = logging.getLogger(__name__)


def reopen(job_dir: str) -> None:
    """Says that a job runs again, where a report says that its chief will do no more.

    For tasks that ask so before the new chief has all that a report of its own holds.
    """
    fields = read(job_dir)
    if fields is not None and fields["status"] != RUNNING:
        _write(job_dir, {**fields, "status": RUNNING})


def read(job_dir: str, patience: float | None = None) -> dict[str, Any] | None:
    """The fields of a job's report, None when it has none yet.

    A file that is empty or cut off, as a power cut can leave it, is none: the next run writes it
    again, and nothing depends on the old one.
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


def load(job_dir: str) -> Report | None:
    """The whole report of a job, None where `read` finds none."""
    fields = read(job_dir)
    try:
        return None if fields is None else Report.from_json(fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        path = posixpath.join(job_dir, FILE)
        raise UserError(f"{path} is not a report of this version ({error}); delete it") from None


def write(job_dir: str, report: Report) -> None:
    """Writes the report of a job in one piece, in place of the one that is there."""
    _write(job_dir, report.to_json())


def _write(job_dir: str, fields: Mapping[str, Any]) -> None:
    atomic_file.write(posixpath.join(job_dir, FILE), json.dumps(fields, indent=1) + "\n")
