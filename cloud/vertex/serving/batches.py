"""Batch predictions on Vertex AI: begins them, follows them, ends them."""

import hashlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
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

Job = dict[str, Any]


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

    def same(self, body: Mapping[str, Any], again: bool) -> Job | None:
        """A batch prediction with the same request that goes on, or has ended well.

        The request names what is predicted and does not hold it: files that were written anew
        under the same names make no other request.

        Args:
            body: The request.
            again: Whether one that has ended does not count.

        Returns:
            The newest of those that go on, else of those that have succeeded; None without any.
        """
        found = _newest_first(self._all(f"labels.{_SAME}={_digest(body)}"))
        for job in found:
            if not has_ended(job):
                self._say(f"{job['name']} does that already")
                return job
        for job in [] if again else found:
            if state_of(job) == GOOD:
                self._say(
                    f"{job['name']} has done that already, from files and tables of these names; "
                    "give --again to predict them once more"
                )
                return job
        return None

    def begin(self, body: Mapping[str, Any]) -> Job:
        """Begins a batch prediction, once, whatever becomes of the answer.

        Args:
            body: The request.

        Returns:
            The job.
        """
        submission = uuid.uuid4().hex
        labels = {**body.get("labels", {}), SUBMISSION: submission, _SAME: _digest(body)}

        def find() -> Job | None:
            return next(self._all(f"labels.{SUBMISSION}={submission}"), None)

        address = f"{self._url}/{self._parent}/{KIND}"
        return self._rest.create(address, {**body, "labels": labels}, find)

    def get(self, job: str) -> Job:
        """A batch prediction.

        Args:
            job: Its number or its resource name.

        Raises:
            UserError: If it is neither, or there is none of that name.
        """
        return self._rest.get(self._address(job))

    def follow(self, job: Job, again: str) -> Job:
        """Shows the state of a job, and how far it is, until it ends well.

        Args:
            job: The job.
            again: How people end it.

        Returns:
            The job as it is then.

        Raises:
            RunError: If it ends otherwise than well, or the limit is over.
            KeyboardInterrupt: If the user has enough; the job goes on.
        """
        found = self.wait(job, again)
        if state_of(found) != GOOD:
            raise RunError(f"{found['name']}: {state_of(found)}: {_reason(found)}")
        return found

    def wait(self, job: Job, again: str) -> Job:
        """Shows the state of a job, and how far it is, until it ends, well or not.

        Args:
            job: The job.
            again: What people may do while it goes on.

        Returns:
            The job as it is then.

        Raises:
            RunError: If the limit is over.
            KeyboardInterrupt: If the user has enough; the job goes on.
        """
        name, told = str(job["name"]), ""
        deadline = time.monotonic() + self._patience.limit_seconds
        try:
            while True:
                found = self._rest.get(self._address(name))
                line = f"{found.get('displayName', name)}: {state_of(found)}{_progress(found)}"
                if line != told:
                    self._say(line)
                    told = line
                if has_ended(found):
                    return found
                if time.monotonic() >= deadline:
                    limit = f"{self._patience.limit_seconds:g} s (--wait_seconds)"
                    raise RunError(
                        f"{name} is {state_of(found)} after {limit}; it goes on; {again}"
                    )
                time.sleep(self._patience.poll_seconds)
        except KeyboardInterrupt:
            self._say(f"{name} goes on; {again}")
            raise

    def cancel(self, job: Job) -> None:
        """Asks for the end of a job."""
        self._rest.post(f"{self._address(str(job['name']))}:cancel", {})

    def made_here(self) -> list[Job]:
        """Those that this program has made, the newest first."""
        return _newest_first(self._all(f"labels.{LABEL}:*"))

    def _address(self, job: str) -> str:
        if job.isdecimal():
            return f"{self._url}/{self._parent}/{KIND}/{job}"
        if not re.fullmatch(rf"projects/[^/]+/locations/[^/]+/{KIND}/\d+", job):
            raise UserError(
                f"{job!r} is no batch prediction; write its number, or its whole name as "
                f"projects/P/locations/L/{KIND}/NUMBER; the verb list shows them"
            )
        return f"{self._url}/{job}"

    def _all(self, wanted: str) -> Iterator[Job]:
        query = {"filter": wanted, "pageSize": "100"}
        return self._rest.listed(f"{self._url}/{self._parent}/{KIND}", KIND, query)


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether a job does nothing any more, and costs nothing."""
    return state_of(job) in LAST


def found_of(job: Mapping[str, Any]) -> str:
    """What an ended job has left, for people."""
    where = output_of(job)
    return f"what it has predicted: {where}" if where else "it has left no predictions"


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


def _newest_first(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: str(job.get("createTime", "")), reverse=True)


def _digest(body: Mapping[str, Any]) -> str:
    """What tells a request from any other, as a label's value."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]


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
