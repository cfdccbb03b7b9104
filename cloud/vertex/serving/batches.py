"""Batch predictions on Vertex AI: begins them, follows them, ends them."""

import hashlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloud.follower import Patience
from cloud.vertex.job_states import GOOD, LAST, state_of
from cloud.vertex.jobs import LABEL as SUBMISSION
from cloud.vertex.rest import Rest
from cloud.vertex.serving.model_version import LABEL
from tfps.errors import RunError, UserError

KIND = "batchPredictionJobs"
_SAME = "tfps-same"  # its value tells what is predicted, by which model, and where it goes
_COUNTS = {"successfulCount": "predicted", "failedCount": "failed", "incompleteCount": "to go"}


class Batches:
    """The batch predictions of a region."""

    def __init__(
        self, rest: Rest, url: str, parent: str, patience: Patience, say: Callable[[str], None]
    ):
        """Reaches them.

        Args:
            rest: A session.
            url: Address of Vertex AI, `/v1` included.
            parent: Resource name of the project and region.
            patience: How long to follow one, and how often to look.
            say: Prints a line.
        """
        self._rest = rest
        self._url = url
        self._parent = parent
        self._patience = patience
        self._say = say

    def begin(self, body: Mapping[str, Any]) -> str:
        """Begins a batch prediction, once, unless the same one goes on.

        Args:
            body: The request.

        Returns:
            Resource name of the job.
        """
        text = json.dumps(body, sort_keys=True)
        same = hashlib.sha256(text.encode()).hexdigest()[:32]
        for job in self._all(f"labels.{_SAME}={same}"):
            if state_of(job) not in LAST:
                self._say(f"{job['name']} does that already")
                return str(job["name"])
        submission = uuid.uuid4().hex
        labels = {**body.get("labels", {}), SUBMISSION: submission, _SAME: same}

        def find() -> dict[str, Any] | None:
            return next(self._all(f"labels.{SUBMISSION}={submission}"), None)

        address = f"{self._url}/{self._parent}/{KIND}"
        return str(self._rest.create(address, {**body, "labels": labels}, find)["name"])

    def follow(self, job: str, again: str) -> dict[str, Any]:
        """Shows the state of a job, and how far it is, until it ends.

        Args:
            job: Its resource name.
            again: How people end it.

        Returns:
            The job.

        Raises:
            RunError: If it ends otherwise than well, or the limit is over.
            KeyboardInterrupt: If the user has enough; the job goes on.
        """
        deadline = time.monotonic() + self._patience.limit_seconds
        told = ""
        try:
            while True:
                found = self._rest.get(self._address(job))
                state = state_of(found)
                line = f"{found.get('displayName', job)}: {state}{_progress(found)}"
                if line != told:
                    self._say(line)
                    told = line
                if state in LAST:
                    break
                if time.monotonic() >= deadline:
                    limit = f"{self._patience.limit_seconds:g} s (--wait_seconds)"
                    raise RunError(f"{job} is {state} after {limit}; it goes on; {again}")
                time.sleep(self._patience.poll_seconds)
        except KeyboardInterrupt:
            self._say(f"{job} goes on; {again}")
            raise
        if state != GOOD:
            raise RunError(f"{job}: {state}: {_reason(found)}")
        return found

    def cancel(self, job: str) -> None:
        """Asks for the end of a job.

        Args:
            job: Its number or its resource name.
        """
        self._rest.post(f"{self._address(job)}:cancel", {})

    def made_here(self) -> list[dict[str, Any]]:
        """Those that this program has made, the newest first."""
        found = self._all(f"labels.{LABEL}:*")
        return sorted(found, key=lambda job: str(job.get("createTime", "")), reverse=True)

    def _address(self, job: str) -> str:
        if job.isdecimal():
            return f"{self._url}/{self._parent}/{KIND}/{job}"
        if not re.fullmatch(rf"projects/[^/]+/locations/[^/]+/{KIND}/\d+", job):
            raise UserError(
                f"{job!r} is no batch prediction; write its number, or its whole name as "
                f"projects/P/locations/L/{KIND}/NUMBER; the verb list shows them"
            )
        return f"{self._url}/{job}"

    def _all(self, wanted: str) -> Iterator[dict[str, Any]]:
        query = {"filter": wanted, "pageSize": "100"}
        return self._rest.listed(f"{self._url}/{self._parent}/{KIND}", KIND, query)


def shown(job: Mapping[str, Any]) -> str:
    """A job for people, in a line."""
    title = job.get("displayName", "")
    return f"{title}: {state_of(job)}{_progress(job)}  {job.get('name', '')}"


def output_of(job: Mapping[str, Any]) -> str:
    """Where the predictions of a job lie."""
    info = job.get("outputInfo", {})
    if directory := info.get("gcsOutputDirectory"):
        return str(directory)
    return f"{info.get('bigqueryOutputDataset', '')}.{info.get('bigqueryOutputTable', '')}".strip(
        "."
    )


def _progress(job: Mapping[str, Any]) -> str:
    stats = job.get("completionStats", {})
    parts = [
        f"{int(stats[name]):,} {what}"
        for name, what in _COUNTS.items()
        if int(stats.get(name, 0)) > 0
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _reason(job: Mapping[str, Any]) -> str:
    errors = [job.get("error", {}), *job.get("partialFailures", ())]
    texts = [" ".join(str(each.get("message", "")).split()) for each in errors]
    where = output_of(job)
    found = "; ".join(text for text in texts if text) or "see its page in Google's console"
    return f"{found}; {where} tells which records have failed" if where else found
