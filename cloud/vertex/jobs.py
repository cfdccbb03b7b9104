"""Jobs on Vertex AI: makes them, looks at them, ends them."""

import itertools
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cloud.job_status import JobStatus
from cloud.target import Request
from cloud.vertex import job_states
from cloud.vertex.logs import Logs
from cloud.vertex.rest import Rest
from cloud.vertex.settings import VertexSettings
from tfps.errors import RunError, UserError

LABEL = "tfps-submission"  # of every job that this program has made; its value names the request
KINDS = ("customJobs", "hyperparameterTuningJobs")
_MOST_LISTED = 100


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
        kind = KINDS[1] if "studySpec" in body else KINDS[0]
        submission = uuid.uuid4().hex
        labelled = {**body, "labels": {**body.get("labels", {}), LABEL: submission}}

        def find() -> dict[str, Any] | None:
            return next(self._all(kind, f"labels.{LABEL}={submission}"), None)

        try:
            made = self._rest.create(f"{self._parent}/{kind}", labelled, find)
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
        """The newest jobs that this program has made, of both kinds."""
        found: list[JobStatus] = []
        for kind in KINDS:
            newest = itertools.islice(self._all(kind, f"labels.{LABEL}:*"), _MOST_LISTED)
            found += map(_status, newest)
        return sorted(found, key=lambda status: status.created, reverse=True)[:_MOST_LISTED]

    def describe(self, job: str) -> Request:
        """The whole resource."""
        return self._rest.get(self._address(job))

    @property
    def _parent(self) -> str:
        return f"{self._url}/v1/{self._settings.parent}"

    def _all(self, kind: str, wanted: str) -> Iterator[dict[str, Any]]:
        query = {"filter": wanted, "pageSize": "100"}
        return self._rest.listed(f"{self._parent}/{kind}", kind, query)

    def _address(self, job: str) -> str:
        """The address of a job by its number, or by its whole name."""
        if job.isdecimal():
            return f"{self._parent}/{KINDS[0]}/{job}"
        form = rf"projects/[^/]+/locations/([^/]+)/({'|'.join(KINDS)})/\d+"
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
    state = job_states.state_of(found)
    return JobStatus(
        name=str(found.get("name", "")),
        title=str(found.get("displayName", "")),
        state=state,
        created=str(found.get("createTime", "")),
        has_ended=state in job_states.LAST,
        is_success=state == job_states.GOOD,
        message=" ".join(str(found.get("error", {}).get("message", "")).split()),
    )
