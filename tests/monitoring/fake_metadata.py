"""A stand-in for the metadata of Vertex AI: its REST API, kept as its published messages."""

import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform_v1
from google.cloud.aiplatform_v1.services.metadata_service.transports import (
    MetadataServiceRestTransport,
)
from google.protobuf import json_format


class FakeMetadata(ThreadingHTTPServer):
    """Serves on a free port of the loopback interface; a context manager.

    Attributes:
        contexts: By name.
        children: Names of the contexts under each.
        has_store: Whether the project has a store of metadata already.
        failures: How many of the next requests are answered with 503.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.contexts, self.children = {}, {}
        self.has_store, self.failures = False, 0
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def client(self):
        """Google's own client, of this server."""
        transport = MetadataServiceRestTransport(
            host=f"127.0.0.1:{self.server_address[1]}",
            url_scheme="http",
            credentials=AnonymousCredentials(),
        )
        return aiplatform_v1.MetadataServiceClient(transport=transport)

    def metadata(self, name):
        """What a context keeps."""
        return json_format.MessageToDict(self.contexts[name]._pb)["metadata"]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer(lambda path, query, body: self._get(path))

    def do_POST(self):
        self._answer(self._post)

    def do_PATCH(self):
        self._answer(self._patch)

    def log_message(self, *_):
        """Tells nobody."""

    def _get(self, path):
        if path.endswith("/metadataStores/default") and self.server.has_store:
            return 200, {"name": path}
        if path in self.server.contexts:
            return 200, _json(self.server.contexts[path])
        return 404, _error(404, "NOT_FOUND")

    def _post(self, path, query, body):
        if path.endswith("/metadataStores"):
            self.server.has_store = True
            store = {"@type": "type.googleapis.com/google.cloud.aiplatform.v1.MetadataStore"}
            return 200, {"name": f"{path}/default/operations/1", "done": True, "response": store}
        if path.endswith(":addContextChildren"):
            self.server.children[path.partition(":")[0]] = body["childContexts"]
            return 200, {}
        assert path.endswith("/contexts"), path
        name = f"{path}/{query['contextId']}"
        if name in self.server.contexts:
            return 409, _error(409, "ALREADY_EXISTS")
        self.server.contexts[name] = _context(name, body)
        return 200, _json(self.server.contexts[name])

    def _patch(self, path, query, body):
        assert query["updateMask"] == "metadata"
        kept = self.server.contexts[path]
        kept.metadata = _context(path, body).metadata
        return 200, _json(kept)

    def _answer(self, act):
        parts = urllib.parse.urlsplit(self.path)
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size) or b"{}")
        query = {name: value for name, [value] in urllib.parse.parse_qs(parts.query).items()}
        if self.server.failures:
            self.server.failures -= 1
            status, answer = 503, _error(503, "UNAVAILABLE")
        else:
            status, answer = act(parts.path.removeprefix("/v1/"), query, body)
        encoded = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


def _context(name, body):
    context = aiplatform_v1.Context()
    json_format.ParseDict(body, context._pb)
    context.name = name
    return context


def _json(message):
    return json_format.MessageToDict(message._pb)


def _error(code, status):
    return {"error": {"code": code, "message": status.lower(), "status": status}}
