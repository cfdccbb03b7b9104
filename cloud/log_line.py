"""What a line of a task's log says that is an object of JSON, as tasks write them on platforms."""

from collections.abc import Mapping
from typing import Any

from tfps.job_dir.task_name import TaskName
from tfps.live_view import status

LABELS = "logging.googleapis.com/labels"


def said(fields: Mapping[str, Any]) -> str:
    """How far the run is, as `tfps.live_view.status.parse` reads it, else the message."""
    found = status.from_json(fields)
    return found.to_text() if found else str(fields.get("message", ""))


def teller(task: str, labels: Mapping[str, Any]) -> str:
    """Whose line it is: a chief's container has those of the worker beside it, too."""
    role, index = labels.get("role"), str(labels.get("index"))
    if task == "chief" and role == "worker" and index.isdecimal():
        return TaskName(role, int(index)).label
    return task
