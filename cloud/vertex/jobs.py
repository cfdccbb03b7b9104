"""Jobs on Vertex AI: makes them, looks at them, ends them."""

import datetime
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.api_core.exceptions import PreconditionFailed

from cloud.remote_target import said, teller
from cloud.target import JobStatus, Request
from cloud.vertex.checks import VertexSettings
from cloud.vertex.client import Client, pages, shown
from tfps.cluster.spec import JOBS
from tfps.errors import RunError, UserError
from tfps.job_dir.task_name import TaskName
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name

_PAGE = 1000
_SECONDS = len("2026-11-21T10:00:00")  # of a time stamp, what comes before parts of a second
# Entries may come in later than younger ones; so far back is looked again.
_LATE = datetime.timedelta(seconds=60)
_GOOD = "SUCCEEDED"
_LAST = (_GOOD, "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
_LABEL = "tfps-submission"  # of every job that this program has made; its value names the request
_MOST_LISTED = 100


class Logs:
    """Reads the lines of one job, each once."""

    def __init__(self, client: Client, number: str):
        self._client = client
        self._filter = f'resource.type="ml_job" AND resource.labels.job_id="{number}"'
        self._newest = ""
        self._told: dict[str, str] = {}  # entries within `_LATE` of the newest: id and time

    def new_lines(self) -> Iterator[tuple[str, str]]:
        """Task and text of the entries that have come in since the last call, by time."""
        since = _earlier(self._newest) if self._newest else ""
        for entry in pages(lambda token: self._page(since, token), "entries"):
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
            "resourceNames": [f"projects/{self._client.settings.project}"],
            "filter": self._filter + (f' AND timestamp>="{since}"' if since else ""),
            "orderBy": "timestamp asc",
            "pageSize": _PAGE,
            **({"pageToken": token} if token else {}),
        }
        return self._client.post(f"{self._client.logs_url}/v2/entries:list", body)[0]


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


class VertexJobs:
    """The sender of `--target=vertex`."""

    def __init__(self, settings: VertexSettings):
        self._client = Client(settings)
        self._jobs = self._client.service("Job")
        self._settings = settings
        self._logs: dict[str, Logs] = {}

    def send(self, requests: Sequence[Request]) -> str:
        """Makes one job: a try that seemed to fail is looked for before the next."""
        (body,) = requests
        assert isinstance(body, dict)
        submission = uuid.uuid4().hex
        labels = {**body.get("labels", {}), _LABEL: submission}
        job = self._client.message("CustomJob", {**body, "labels": labels})

        def find() -> Any:
            return next(iter(self._all(f"labels.{_LABEL}={submission}")), None)

        make, parent = self._jobs.create_custom_job, self._settings.parent
        try:
            made = self._client.call(make, find, parent=parent, custom_job=job)
        except RunError as error:
            raise RunError(
                f"{error}; the job may exist all the same: look with the verb list"
            ) from None
        return str(made.name)

    def status(self, job: str) -> JobStatus:
        return _status(self._get(job))

    def new_lines(self, job: str) -> Iterable[tuple[str, str]]:
        if job not in self._logs:
            self._logs[job] = Logs(self._client, self._name(job).rpartition("/")[2])
        return self._logs[job].new_lines()

    def cancel(self, job: str) -> None:
        self._client.call(self._jobs.cancel_custom_job, name=self._name(job))

    def list(self) -> Sequence[JobStatus]:
        found = map(_status, self._all(f"labels.{_LABEL}:*"))
        return sorted(found, key=lambda status: status.created, reverse=True)

    def describe(self, job: str) -> Request:
        return shown(self._get(job))

    def _get(self, job: str) -> Any:
        return self._client.call(self._jobs.get_custom_job, name=self._name(job))

    def _all(self, wanted: str) -> Iterable[Any]:
        return self._client.listed(self._jobs.list_custom_jobs, wanted, most=_MOST_LISTED)

    def _name(self, job: str) -> str:
        """The resource name of a job, by its number or by that name."""
        if job.isdecimal():
            return f"{self._settings.parent}/customJobs/{job}"
        match = re.fullmatch(r"projects/[^/]+/locations/([^/]+)/customJobs/\d+", job)
        if not match:
            raise UserError(
                f"{job!r} is no job; write its number, or its whole name as "
                "projects/P/locations/L/customJobs/NUMBER; the verb list shows the jobs"
            )
        if match[1] != self._settings.region:
            raise UserError(f"{job} is in {match[1]}; give --region={match[1]}")
        return job


def _status(job: Any) -> JobStatus:
    # A state that is younger than Google's client is a number.
    state = getattr(job.state, "name", str(job.state)).removeprefix("JOB_STATE_")
    return JobStatus(
        name=job.name,
        title=job.display_name,
        state=state,
        created=job.create_time.rfc3339() if job.create_time else "",
        has_ended=state in _LAST,
        is_success=state == _GOOD,
        message=" ".join(job.error.message.split()),
    )


def upload(content: bytes, path: str) -> None:
    """Uploads a package to Google Cloud Storage, unless it is there; its name tells its content."""
    bucket, name = bucket_and_name(path)
    try:
        objects.client().bucket(bucket).blob(name).upload_from_string(
            content,
            "application/gzip",
            if_generation_match=0,
            timeout=objects.TIMEOUT,
            retry=objects.retrying(),
        )
    except PreconditionFailed:
        return  # uploaded before, perhaps by a request of this very upload
    except objects.FAILURES as error:
        raise objects.explain(error, f"--staging_bucket={path}") from None
