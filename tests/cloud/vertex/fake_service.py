"""What stand-ins of Google's REST APIs share: a server here whose answers can be spoilt."""

import json
import threading
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format

PLACE = "projects/my-project/locations/us-central1"


class RefusedError(Exception):
    """A request that Google would refuse: status and message."""


class FakeService(ThreadingHTTPServer):
    """Serves on a free port of the loopback interface, in threads; a context manager.

    Attributes:
        faults: For each kind of request what goes wrong with the next ones: a status; "lost", where
            the request has its effect and the connection breaks before the answer; "page", an
            answer for people; or "late", an answer that does not come before `released` is set.
        page_size: Items in one page of any answer.
        counts: Requests by kind.
        headers: Of the last request.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults = {}
        self.page_size = 2
        self.counts = Counter()
        self.headers = {}
        self.lock = threading.Lock()
        self.released = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def dispatch(self, method, path, query):
        """The kind of a request, and what answers its body: JSON, or JSON and headers.

        What answers may raise `RefusedError`.
        """
        raise NotImplementedError

    def page(self, name, items, token):
        first = int(token or 0)
        page = {name: items[first : first + self.page_size]}
        if first + self.page_size < len(items):
            page["nextPageToken"] = str(first + self.page_size)
        return page

    def handle_error(self, request, client_address):
        """Says nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the head's receipt
    server: FakeService

    def do_GET(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        parts = urllib.parse.urlsplit(self.path)
        path, query = urllib.parse.unquote(parts.path), dict(urllib.parse.parse_qsl(parts.query))
        with self.server.lock:
            self.server.headers = self.headers
            kind, answer = self.server.dispatch(self.command, path, query)
            self.server.counts[kind] += 1
            faults = self.server.faults.get(kind, [])
            fault = faults.pop(0) if faults else None
            if isinstance(fault, int):
                self._send(fault, error(fault, f"the test\nwants {fault}"))
                return
            status, found, headers = self._answered(answer, body)
        if fault == "late":
            self.server.released.wait(60)
        if fault in ("lost", "late"):
            self.close_connection = True
            self.connection.close()
            return
        self._send(status, found, headers, is_page=fault == "page")

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _answered(self, answer, body):
        try:
            found = answer(body)
        except RefusedError as refused:
            return refused.args[0], error(*refused.args), {}
        except json_format.ParseError as unknown:
            return 400, error(400, str(unknown)), {}
        return (200, *found) if isinstance(found, tuple) else (200, found, {})

    def _send(self, status, found, headers=None, is_page=False):
        data = b"<html>" if is_page else json.dumps(found).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        """Says nothing."""


def error(status, message):
    return {"error": {"code": status, "message": message}}


def missing(body):
    raise RefusedError(404, "there is no such thing")


def parsed(body, message):
    """A message of Google's, of JSON in which every field must be known."""
    return json_format.ParseDict(body, message.pb()())


def shown(message):
    """JSON of a message of Google's."""
    return json_format.MessageToDict(getattr(message, "_pb", message))
