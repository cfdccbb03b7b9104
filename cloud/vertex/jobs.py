"""Jobs on Vertex AI: makes them, looks at them, ends them."""

import datetime
import itertools
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cloud.remote_target import said, teller
from cloud.target import JobStatus, Request
from cloud.vertex.rest import Rest
from cloud.vertex.settings import VertexSettings
from tfps.cluster.spec import JOBS
from tfps.errors import RunError, UserError
from tfps.job_dir.task_name import TaskName

_PAGE = 1000
_SECONDS = len("2026-11-21T10:00:00")  # of a time stamp, what comes before parts of a second
# Entries may come in later than younger ones; so far back is looked again.
_LATE = datetime.timedelta(seconds=60)
GOOD = "SUCCEEDED"
LAST = (GOOD, "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
LABEL = "tfps-submission"  # of every job that this program has made; its value names the request
KIND = "customJobs"
_MOST_LISTED = 100


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
    """The task for people: workerpool1-0 is worker 0."""
    name = str(entry.get("resource", {}).get("labels", {}).get("task_name", "service"))
    if match := re.fullmatch(r"workerpool([0-3])-(\d+)", name):
        name = TaskName(JOBS[int(match[1])], int(match[2])).label
    return teller(name, entry.get("labels", {}))


def _text(entry: dict[str, Any]) -> str:
    payload = entry.get("jsonPayload", {})
    return str(entry.get("textPayload") or said(payload) or payload or "").rstrip("\n")


def state_of(job: Mapping[str, Any]) -> str:
    """The state of a job."""
    return str(job.get("state", "UNKNOWN")).removeprefix("JOB_STATE_")


class VertexJobs:
    """The sender of `--target=vertex`."""

    def __init__(self, rest: Rest, settings: VertexSettings, endpoint: str = ""):
        """Reaches the jobs of a region.

        Args:
            endpoint: What stands for Google's APIs; empty for those themselves.
        """
        self._rest = rest
        self._settings = settings
        self._url = endpoint or f"https://{settings.region}-aiplatform.googleapis.com"
        self._logs_url = endpoint or "https://logging.googleapis.com"
        self._logs: dict[str, Logs] = {}

    def send(self, requests: Sequence[Request]) -> str:
        """Makes one job: a try that seemed to fail is looked for before the next."""
        (body,) = requests
        assert isinstance(body, dict)
        submission = uuid.uuid4().hex
        labelled = {**body, "labels": {**body.get("labels", {}), LABEL: submission}}

        def find() -> dict[str, Any] | None:
            return next(self._all(f"labels.{LABEL}={submission}"), None)

        try:
            made = self._rest.create(f"{self._parent}/{KIND}", labelled, find)
        except RunError as error:
            raise RunError(
                f"{error}; the job may exist all the same: look with the verb list"
            ) from None
        return str(made["name"])

    def status(self, job: str) -> JobStatus:
        """State of a job."""
        return _status(self._rest.get(self._address(job)))

    def new_lines(self, job: str) -> Iterable[tuple[str, str]]:
        """What the tasks have written since the last call."""
        if job not in self._logs:
            number = self._address(job).rpartition("/")[2]
            self._logs[job] = Logs(self._rest, self._logs_url, self._settings.project, number)
        return self._logs[job].new_lines()

    def cancel(self, job: str) -> None:
        """Asks for the end of a job."""
        self._rest.post(f"{self._address(job)}:cancel", {})

    def list(self) -> Sequence[JobStatus]:
        """The newest jobs that this program has made."""
        newest = itertools.islice(self._all(f"labels.{LABEL}:*"), _MOST_LISTED)
        return sorted(map(_status, newest), key=lambda status: status.created, reverse=True)

    def describe(self, job: str) -> Request:
        """The whole resource."""
        return self._rest.get(self._address(job))

    @property
    def _parent(self) -> str:
        return f"{self._url}/v1/{self._settings.parent}"

    def _all(self, wanted: str) -> Iterator[dict[str, Any]]:
        query = {"filter": wanted, "pageSize": "100"}
        return self._rest.listed(f"{self._parent}/{KIND}", KIND, query)

    def _address(self, job: str) -> str:
        """The address of a job by its number, or by its whole name."""
        if job.isdecimal():
            return f"{self._parent}/{KIND}/{job}"
        form = rf"projects/[^/]+/locations/([^/]+)/{KIND}/\d+"
        match = re.fullmatch(form, job)
        if not match:
            raise UserError(
                f"{job!r} is no job; write its number, or its whole name as "
                "projects/P/locations/L/customJobs/NUMBER; the verb list shows the jobs"
            )
        if match[1] != self._settings.region:
            raise UserError(f"{job} is in {match[1]}; give --region={match[1]}")
        return f"{self._url}/v1/{job}"


def _status(found: dict[str, Any]) -> JobStatus:
    state = state_of(found)
    return JobStatus(
        name=str(found.get("name", "")),
        title=str(found.get("displayName", "")),
        state=state,
        created=str(found.get("createTime", "")),
        has_ended=state in LAST,
        is_success=state == GOOD,
        message=" ".join(str(found.get("error", {}).get("message", "")).split()),
    )
