"""A stand-in for Vertex AI and Cloud Logging: their REST APIs, their messages, their states.

Jobs are kept as the published protocol buffers, so a request that Google would not understand is
refused here too.
"""

import re

from google.cloud.aiplatform_v1.types import CustomJob, JobState
from google.protobuf import json_format

from tests.cloud.vertex.fake_service import PLACE, FakeService, missing, shown

KIND = "customJobs"
SUCCEEDING = ("QUEUED", "PENDING", "RUNNING", "SUCCEEDED")


class FakeVertex(FakeService):
    """Jobs, and what their tasks write.

    Attributes:
        jobs: Resource name and message of every job, in the order of their creation.
        states: States that a new job goes through, one further at each look at it.
        error: Message of a job that ends FAILED.
        entries: Log entries of every job: task_name and text.
        queries: Bodies of the requests for log entries.
    """

    def __init__(self):
        super().__init__()
        self.jobs = {}
        self.states = SUCCEEDING
        self.error = ""
        self.entries = []
        self.queries = []

    @property
    def created(self):
        """The one job that there is."""
        (job,) = self.jobs.values()
        return job

    def dispatch(self, method, path, query):
        """Kinds are create, get, list, cancel, logs."""
        if path == "/v2/entries:list":
            return "logs", self.logged
        match = re.fullmatch(rf"/v1/{PLACE}/{KIND}(/\d+)?(:cancel)?", path)
        if not match:
            return "unknown", missing
        number, verb = match.groups()
        if not number and method == "POST":
            return "create", self.create
        if not number:
            return "list", lambda body: self.listed(query)
        job = self.jobs.get(f"{PLACE}/{KIND}{number}")
        if job is None:
            return "get", missing
        if verb:
            return "cancel", lambda body: self._cancel(job)
        return "get", lambda body: self.look(job)

    def create(self, body):
        job = CustomJob()
        json_format.ParseDict(body, job._pb)
        job.name = f"{PLACE}/{KIND}/{1000 + len(self.jobs)}"
        job.create_time = f"2026-11-21T10:00:{len(self.jobs):02}Z"
        job.state = JobState[f"JOB_STATE_{self.states[0]}"]
        self.jobs[job.name] = job
        return shown(job)

    def look(self, job):
        """The job as it is; the next look finds it one state further."""
        found = shown(job)
        steps = [JobState[f"JOB_STATE_{state}"] for state in self.states]
        place = steps.index(job.state) if job.state in steps else len(steps)
        if place + 1 < len(steps):
            job.state = steps[place + 1]
            if job.state == JobState.JOB_STATE_FAILED:
                job.error.message = self.error
        return found

    def listed(self, query):
        match = re.fullmatch(r"labels\.([\w-]+)(?:=(\w+)|:\*)", query["filter"])
        found = [
            shown(job)
            for job in self.jobs.values()
            if match[1] in job.labels and match[2] in (None, job.labels[match[1]])
        ]
        return self.page(KIND, found, query.get("pageToken", ""))

    def logged(self, body):
        self.queries.append(body)
        since = re.search(r'timestamp>="([^"]+)"', body["filter"])
        shown = [
            entry
            for entry in self.entries
            if not since or entry["timestamp"] >= since[1].rstrip("Z")
        ]
        shown.sort(key=lambda entry: entry["timestamp"])
        return self.page("entries", shown, body.get("pageToken", ""))

    def write(self, task, text, second, **other):
        """Adds a log entry, by default of text."""
        stamp = f"2026-11-21T10:{second // 60:02}:{second % 60:02}.5Z"
        entry = {"insertId": f"id{len(self.entries)}", "timestamp": stamp, "textPayload": text}
        entry["resource"] = {"type": "ml_job", "labels": {"task_name": task}}
        self.entries.append({**entry, **other})

    def _cancel(self, job):
        job.state = JobState.JOB_STATE_CANCELLED
        return {}
