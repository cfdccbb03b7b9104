"""The proxy between Google's clients and the server of objects.

Clients ask it to CONNECT to Google's hosts; it answers in their place, with a certificate that the
clients were told to trust, and passes each request on to the server. What gcp-storage-emulator
leaves out is added here: generations that are asked for, preconditions, pages of a listing.
fake-gcs-server has these of its own; of it, one answer is corrected. Of both are added permissions,
and whatever is to go wrong.
"""

import http.client
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.local_cloud.certificates import HOSTS
from tests.local_cloud.settings import Bandwidth, FaultPlan, Settings

_CHUNK_BYTES = 1 << 18
_NEEDS = {
    "read": "storage.objects.get",
    "stat": "storage.objects.get",
    "list": "storage.objects.list",
    "bucket": "storage.buckets.get",
    "write": "storage.objects.create",
    "copy": "storage.objects.create",
    "delete": "storage.objects.delete",
}


class Proxy(ThreadingHTTPServer):
    """Serves tunnels to Google's hosts and, asked directly, `/control` and `/counts`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, emulator: tuple[str, int], certificate: str, completes: bool) -> None:
        """Serves nothing yet.

        Args:
            emulator: Address of the server of objects.
            certificate: Path of the certificate and its key.
            completes: Whether to add what gcp-storage-emulator leaves out.
        """
        super().__init__(("127.0.0.1", 0), _Handler)
        self.emulator = emulator
        self.completes = completes
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate)
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.control(Settings())

    def control(self, settings: Settings) -> None:
        """Changes the settings, for requests that come after."""
        self.plan = FaultPlan(settings.faults)
        self.bandwidth = Bandwidth(settings.bytes_per_second)
        self.settings = settings

    def report(self) -> dict:
        """What was counted since it was asked last."""
        with self.lock:
            counted = (self.counts, self.sizes, self.hits)
            found = dict(zip(("requests", "bytes", "faults"), map(dict, counted), strict=True))
            for counter in counted:
                counter.clear()
        return found

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of clients that went away."""


class _Request:
    """A request of Google's JSON or XML API."""

    def __init__(self, host: str, method: str, target: str, body: bytes) -> None:
        self.method, self.target, self.body = method, target, body
        parts = urllib.parse.urlsplit(target)
        self.path = parts.path
        self.query = dict(urllib.parse.parse_qsl(parts.query))
        match = re.fullmatch(r"(?:/upload|/download)?/storage/v1/b/([^/]+)(/.*)?", self.path)
        match = match or re.fullmatch(r"/([^/]+)(/.*)", self.path)
        self.bucket, rest = (match[1], match[2] or "") if match else ("", "")
        name, is_copy, _ = rest.removeprefix("/o").removeprefix("/").partition("/rewriteTo/")
        self.name = urllib.parse.unquote(name) or self.query.get("name", "")
        self.kind = self._kind(host, rest, bool(is_copy))

    def _kind(self, host: str, rest: str, is_copy: bool) -> str:
        if host.startswith(("oauth2", "iamcredentials")) or self.path.endswith("/token"):
            return "token"
        if self.path.startswith("/upload") or self.method == "PUT":
            return "write"
        if is_copy:
            return "copy"
        if self.method == "DELETE":
            return "delete"
        if rest == "/iam/testPermissions":
            return "permissions"
        if not rest.startswith("/o") and self.path.startswith("/storage/v1"):
            return "bucket"
        if rest == "/o":
            return "list"
        is_media = self.query.get("alt") == "media" or not self.path.startswith("/storage/v1")
        return "read" if is_media else "stat"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host = ""
    server: Proxy

    def do_CONNECT(self) -> None:
        host = self.path.partition(":")[0]
        if host not in HOSTS:
            self.send_error(502, f"this cloud has no {host}")
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        try:
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        except OSError:  # a client that does not trust the certificate
            self.close_connection = True
            return
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb")
        self.host, self.close_connection = host, False

    def handle_expect_100(self) -> bool:
        # At once: TensorFlow's client waits a second for it before it sends what it writes.
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def do_GET(self) -> None:
        if not self.host:
            self._controlled()
            return
        server = self.server
        request = _Request(self.host, self.command, self.path, self._body())
        fault = server.plan.of(request.kind, request.name)
        time.sleep(server.settings.latency_seconds)
        with server.lock:
            server.counts[request.kind] += 1
            if fault:
                server.hits[fault] += 1
        server.bandwidth.wait(len(request.body))
        status, headers, body = self._answer(request, fault)
        with server.lock:
            server.sizes[request.kind] += len(request.body) + len(body)
        self._send(status, headers, body, fault)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815

    def _controlled(self) -> None:
        if self.path == "/control":
            self.server.control(Settings.from_json(json.loads(self._body())))
        self._send(200, {}, json.dumps(self.server.report()).encode(), "")

    def _body(self) -> bytes:
        # TensorFlow sends Content-Length as well, but the body is in chunks.
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, request: _Request, fault: str) -> tuple[int, dict[str, str], bytes]:
        if fault.isdigit():
            return _error(int(fault), f"the test wants {fault}")
        if request.path.endswith("/allowedLocations"):
            return _json(200, {"locations": [], "encodedLocations": "0x0"})
        if request.kind == "token":
            token = {"access_token": "test", "expires_in": 3600, "token_type": "Bearer"}
            return _json(200, token)
        if not self.headers.get("Authorization"):
            return _error(401, "Anonymous caller does not have storage access")
        allowed = self.server.settings.permissions.get(request.bucket)
        if request.kind == "permissions":
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.target).query)
            bucket = _Request(self.host, "GET", f"/storage/v1/b/{request.bucket}", b"")
            status, headers, body = self._forward(bucket)
            if status != 200:
                return status, headers, body
            asked = query.get("permissions", [])
            held = [p for p in asked if allowed is None or p in allowed]
            return _json(200, {"permissions": held} if held else {})
        if allowed is not None and _NEEDS[request.kind] not in allowed:
            return _error(403, f"the caller does not have {_NEEDS[request.kind]}")
        if not self.server.completes:
            return self._corrected(request)
        if failed := self._failed_precondition(request):
            return _error(failed, "conditionNotMet" if failed == 412 else "No such object")
        return self._completed(request, *self._forward(request))

    def _corrected(self, request: _Request) -> tuple[int, dict[str, str], bytes]:
        """An answer of fake-gcs-server, or Google's where that differs."""
        if request.kind == "list":
            request.target += f"&maxResults={self.server.settings.page_size}"
        # It takes the question how much of an upload has arrived for the upload's end. Google says
        # 308, and without a Range that nothing has: a request that fails here has sent it nothing.
        if request.kind == "write" and self.headers.get("Content-Range", "").startswith("bytes */"):
            return 308, {}, b""
        status, headers, body = self._forward(request)
        if status == 200 and request.kind == "bucket":
            location = self.server.settings.locations.get(request.bucket, "US")
            return _json(status, {**json.loads(body), "location": location})
        return status, headers, body

    def _failed_precondition(self, request: _Request) -> int:
        """The status that ends a request for a generation that the object does not have, or 0."""
        wanted = request.query.get("generation") or request.query.get("ifGenerationMatch")
        if wanted is None or request.kind not in ("read", "stat", "write", "delete"):
            return 0
        name = urllib.parse.quote(request.name, safe="")
        stat = _Request(self.host, "GET", f"/storage/v1/b/{request.bucket}/o/{name}", b"")
        status, _, body = self._forward(stat)
        found = json.loads(body)["generation"] if status == 200 else "0"
        if found == wanted:
            return 0
        return 404 if "generation" in request.query else 412

    def _completed(
        self, request: _Request, status: int, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """An answer of the emulator with what it leaves out."""
        if status != 200 or request.method != "GET":
            return status, headers, body
        if request.kind == "list":
            listing = json.loads(body)
            items, size = listing.get("items", []), self.server.settings.page_size
            first = int(request.query.get("pageToken", 0))
            listing["items"] = items[first : first + size]
            if first + size < len(items):
                listing["nextPageToken"] = str(first + size)
            return _json(status, listing)
        if request.kind == "bucket":
            location = self.server.settings.locations.get(request.bucket, "US")
            return _json(status, {**json.loads(body), "location": location})
        if request.kind == "read" and self.headers.get("Range") and not body:
            return _error(416, "Requested range not satisfiable")
        return status, headers, body

    def _forward(self, request: _Request) -> tuple[int, dict[str, str], bytes]:
        dropped = {"transfer-encoding", "content-length", "connection", "accept-encoding"}
        headers = {k: v for k, v in self.headers.items() if k.lower() not in dropped}
        body = request.body
        if request.query.get("uploadType") == "media" and not body:
            # The emulator fails on an empty body of this form; TensorFlow's markers of
            # directories are such.
            headers["Content-Type"] = 'multipart/related; boundary="b"'
            part = "--b\r\nContent-Type: {}\r\n\r\n{}\r\n"
            body = "".join(
                [part.format("application/json", "{}"), part.format("text/plain", ""), "--b--"]
            ).encode()
            request.target = request.target.replace("uploadType=media", "uploadType=multipart")
        connection = http.client.HTTPConnection(*self.server.emulator)
        try:
            connection.request(request.method, request.target, body, headers)
            response = connection.getresponse()
            found = response.read()
        finally:
            connection.close()
        kept = ("content-type", "content-range", "location", "range", "x-goog-hash")
        answer = {k: v for k, v in response.getheaders() if k.lower() in kept}
        # Of an upload without a byte the emulator says that there is one; Google says nothing.
        if response.status == 308 and answer.get("Range") == "bytes=0-0":
            del answer["Range"]
        # Neither server knows that its clients speak TLS.
        if "Location" in answer:
            answer["Location"] = answer["Location"].replace("http:", "https:", 1)
        if response.getheader("Content-Type", "").startswith("application/json"):
            found = re.sub(rb'("mediaLink": ?)"http:', rb'\1"https:', found)
        return response.status, answer, found

    def _send(self, status: int, headers: dict[str, str], body: bytes, fault: str) -> None:
        if fault == "stall" and not body:
            time.sleep(self.server.settings.stall_seconds)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = fault in ("truncate", "stall")
        sent = memoryview(body)[: len(body) // 2] if cut else memoryview(body)
        for first in range(0, len(sent), _CHUNK_BYTES):
            part = sent[first : first + _CHUNK_BYTES]
            self.server.bandwidth.wait(len(part))
            self.wfile.write(part)
        self.wfile.flush()
        if fault == "stall":
            time.sleep(self.server.settings.stall_seconds)
        if cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _json(status: int, content: dict) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _error(status: int, message: str) -> tuple[int, dict[str, str], bytes]:
    return _json(status, {"error": {"code": status, "message": message}})
