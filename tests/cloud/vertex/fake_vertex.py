"""A stand-in for Vertex AI and Cloud Logging: their REST APIs, their messages, their states.

Jobs are kept as the published protocol buffers, so a request that Google would not understand is
refused here too.
"""

import json
import re
import threading
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.cloud.aiplatform_v1.types import CustomJob, HyperparameterTuningJob, JobState
from google.protobuf import json_format

KINDS = {"customJobs": CustomJob, "hyperparameterTuningJobs": HyperparameterTuningJob}
SUCCEEDING = ("QUEUED", "PENDING", "RUNNING", "SUCCEEDED")
_PLACE = "projects/my-project/locations/us-central1"


class FakeVertex(ThreadingHTTPServer):
    """Serves on a free port of the loopback interface, in threads; a context manager.

    Attributes:
        jobs: Resource name and message of every job, in the order of their creation.
        states: States that a new job goes through, one further at each look at it.
        error: Message of a job that ends FAILED.
        faults: For each kind of request (create, get, list, cancel, logs) what goes wrong with the
            next ones: a status; "lost", where the request has its effect and the connection
            breaks before the answer; "page", an answer for people; or "late", an answer that does
            not come before `released` is set.
        entries: Log entries of every job: task_name and text.
        page_size: Items in one page of any answer.
        counts: Requests by kind.
        queries: Bodies of the requests for log entries.
        headers: Of the last request.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs = {}
        self.states = SUCCEEDING
        self.error = ""
        self.faults = {}
        self.entries = []
        self.page_size = 2
        self.counts = Counter()
        self.queries = []
        self.headers = {}
        self.lock = threading.Lock()
        self.released = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def created(self):
        """The one job that there is."""
        (job,) = self.jobs.values()
        return job

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def create(self, kind, body):
        job = KINDS[kind]()
        json_format.ParseDict(body, job._pb)
        job.name = f"{_PLACE}/{kind}/{1000 + len(self.jobs)}"
        job.create_time = f"2026-11-21T10:00:{len(self.jobs):02}Z"
        job.state = JobState[f"JOB_STATE_{self.states[0]}"]
        self.jobs[job.name] = job
        return _json(job)

    def look(self, job):
        """The job as it is; the next look finds it one state further."""
        found = _json(job)
        steps = [JobState[f"JOB_STATE_{state}"] for state in self.states]
        place = steps.index(job.state) if job.state in steps else len(steps)
        if place + 1 < len(steps):
            job.state = steps[place + 1]
            if job.state == JobState.JOB_STATE_FAILED:
                job.error.message = self.error
        return found

    def listed(self, kind, query):
        match = re.fullmatch(r"labels\.([\w-]+)(?:=(\w+)|:\*)", query["filter"])
        found = [
            _json(job)
            for name, job in self.jobs.items()
            if f"/{kind}/" in name
            and match[1] in job.labels
            and match[2] in (None, job.labels[match[1]])
        ]
        return self.page(kind, found, query.get("pageToken", ""))

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

    def page(self, name, items, token):
        first = int(token or 0)
        page = {name: items[first : first + self.page_size]}
        if first + self.page_size < len(items):
            page["nextPageToken"] = str(first + self.page_size)
        return page

    def write(self, task, text, second, **other):
        """Adds a log entry, by default of text."""
        stamp = f"2026-11-21T10:{second // 60:02}:{second % 60:02}.5Z"
        entry = {"insertId": f"id{len(self.entries)}", "timestamp": stamp, "textPayload": text}
        entry["resource"] = {"type": "ml_job", "labels": {"task_name": task}}
        self.entries.append({**entry, **other})

    def handle_error(self, request, client_address):
        """Says nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeVertex

    def do_GET(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        with self.server.lock:
            self.server.headers = self.headers
            kind, answer = self._dispatch(parts.path, query)
            self.server.counts[kind] += 1
            faults = self.server.faults.get(kind, [])
            fault = faults.pop(0) if faults else None
            if isinstance(fault, int):
                self._send(fault, _error(fault))
                return
            status, found = answer(body)
        if fault == "late":
            self.server.released.wait(60)
        if fault in ("lost", "late"):
            self.close_connection = True
            self.connection.close()
            return
        self._send(status, "<html>" if fault == "page" else found)

    do_POST = do_GET  # noqa: N815

    def _dispatch(self, path, query):
        """The kind of a request, and what answers its body."""
        server = self.server
        if path == "/v2/entries:list":
            return "logs", lambda body: (200, server.logged(body))
        match = re.fullmatch(rf"/v1/{_PLACE}/({'|'.join(KINDS)})(/\d+)?(:cancel)?", path)
        if not match:
            return "unknown", lambda body: (404, _error(404))
        kind, number, verb = match.groups()
        if not number and self.command == "POST":
            return "create", lambda body: self._create(kind, body)
        if not number:
            return "list", lambda body: (200, server.listed(kind, query))
        job = server.jobs.get(f"{_PLACE}/{kind}{number}")
        if job is None:
            return "get", lambda body: (404, _error(404))
        if verb:
            return "cancel", lambda body: self._cancel(job)
        return "get", lambda body: (200, server.look(job))

    def _create(self, kind, body):
        try:
            return 200, self.server.create(kind, body)
        except json_format.ParseError as error:
            return 400, {"error": {"code": 400, "message": str(error)}}

    def _cancel(self, job):
        job.state = JobState.JOB_STATE_CANCELLED
        return 200, {}

    def _send(self, status, found):
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        """Says nothing."""


def _json(job):
    return json_format.MessageToDict(job._pb)


def _error(status):
    return {"error": {"code": status, "message": f"the test\nwants {status}"}}
