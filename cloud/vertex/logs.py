"""What the tasks of a job have written, as Cloud Logging has it."""

import datetime
import re
from collections.abc import Iterator
from typing import Any

from cloud.log_line import said, teller
from cloud.vertex.rest import Rest
from tfps.cluster.spec import JOBS
from tfps.job_dir.task_name import TaskName

_PAGE = 1000
_SECONDS = len("2026-11-21T10:00:00")  # of a time stamp, what comes before parts of a second
# Entries may come in later than younger ones; so far back is looked again.
_LATE = datetime.timedelta(seconds=60)


class Logs:
    """Reads the lines of one job, each once."""

    def __init__(self, rest: Rest, endpoint: str, project: str, job_id: str):
        self._rest = rest
        self._url = f"{endpoint}/v2/entries:list"
        self._project = project
        self._filter = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"'
        self._newest = ""
        self._told: dict[str, str] = {}  # entries within `_LATE` of the newest: id and time

    def new_lines(self) -> Iterator[tuple[str, str]]:
        """Task and text of the entries that have come in since the last call, by time."""
        since = _earlier(self._newest) if self._newest else ""
        entries = self._rest.pages(lambda token: self._page(since, token), "entries")
        for entry in entries:
            stamp, name = entry.get("timestamp", ""), entry.get("insertId", "")
            if name in self._told:
                continue
            self._told[name] = stamp
            self._newest = max(self._newest, stamp[:_SECONDS])
            yield _task(entry), _text(entry)
        self._told = {
            name: stamp
            for name, stamp in self._told.items()
            if stamp[:_SECONDS] >= since[:_SECONDS]
        }

    def _page(self, since: str, token: str) -> dict[str, Any]:
        body = {
            "resourceNames": [f"projects/{self._project}"],
            "filter": self._filter + (f' AND timestamp>="{since}"' if since else ""),
            "orderBy": "timestamp asc",
            "pageSize": _PAGE,
        }
        return self._rest.post(self._url, body | ({"pageToken": token} if token else {}))


def _earlier(stamp: str) -> str:
    """The point in time `_LATE` before a whole second."""
    second = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S")
    return (second - _LATE).strftime("%Y-%m-%dT%H:%M:%SZ")


def _task(entry: dict[str, Any]) -> str:
    """The task for people: workerpool1-0 is worker 0, in a trial trial 7 worker 0."""
    name = str(entry.get("resource", {}).get("labels", {}).get("task_name", "service"))
    if match := re.fullmatch(r"workerpool([0-3])-(\d+)", name):
        name = TaskName(JOBS[int(match[1])], int(match[2])).label
    labels = entry.get("labels", {})
    name = teller(name, labels)
    trial = labels.get("trial_id") or labels.get("ml.googleapis.com/trial_id")
    return f"trial {trial} {name}" if trial else name


def _text(entry: dict[str, Any]) -> str:
    payload = entry.get("jsonPayload", {})
    return str(entry.get("textPayload") or said(payload) or payload or "").rstrip("\n")
