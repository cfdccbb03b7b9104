"""A real `trainer.serve`, its application alone, and clients that ask them."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from starlette.testclient import TestClient

from tests.loaded import client
from tests.project import ROOT
from trainer.serving.app import ModelApp
from trainer.serving.model_versions import ModelVersions

LIMIT = 120  # seconds to start or to end, on a machine that does much else


class Client:
    """Asks whatever `raw` reaches."""

    def ask(self, content, path="/v1/models/default:predict", headers=()):
        """Status and JSON of a POST; bytes are sent as they are, anything else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.send("POST", path, body, dict(headers))

    def get(self, path):
        """Status and JSON of a GET."""
        return self.send("GET", path)

    def send(self, method, path, body=None, headers=()):
        """Status and JSON of any request."""
        status, _, text = self.raw(method, path, body, headers)
        return status, json.loads(text)

    def raw(self, method, path, body=None, headers=()):
        """Status, headers and text of any request."""
        raise NotImplementedError


class Asked(Client):
    """The application of a model, asked in this process."""

    def __init__(
        self,
        model,
        name="default",
        address="127.0.0.1",
        max_body=1 << 24,
        max_batch=1024,
        rows=None,
    ):
        versions = ModelVersions.open(str(model))
        self.app = ModelApp(versions, name, address, max_body, max_batch, rows)
        self._client = TestClient(self.app, base_url="http://127.0.0.1:8501")

    def raw(self, method, path, body=None, headers=()):
        answer = self._client.request(method, path, content=body, headers=dict(headers))
        assert answer.status_code < 500, answer.text
        return answer.status_code, answer.headers, answer.text


class Server(Client):
    """A running server.

    Attributes:
        url: Without a slash behind.
        port: Its port.
        said: Lines that it has written.
    """

    def __init__(self, model, *flags):
        arguments = ["-m", "trainer.serve", f"--model={model}", "--port=0", *flags]
        environ = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
        environ["PYTHONUNBUFFERED"] = "1"
        command = [sys.executable, *arguments]
        self.process = client.start(command, environ) or subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.said = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        [_, port] = self.wait_for(r"serving: http://[^ ]*:(\d+)/ ")
        self.port = int(port)
        self.url = f"http://127.0.0.1:{port}"

    def _read(self):
        with self.process.stdout as stdout:
            for line in stdout:
                with self._changed:
                    self.said.append(line.decode())
                    self._changed.notify_all()
        with self._changed:
            self.said.append("(end)")
            self._changed.notify_all()

    def wait_for(self, pattern):
        """The match of a pattern in what it says, and its groups."""

        def found():
            return re.search(pattern, "".join(self.said)) or self.said[-1:] == ["(end)"]

        with self._changed:
            assert self._changed.wait_for(found, LIMIT), self.said
            match = re.search(pattern, "".join(self.said))
        assert match, "".join(self.said)
        return [match[0], *match.groups()]

    def end(self, number=signal.SIGTERM):
        """Its exit code after a signal."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        try:
            return self.process.wait(LIMIT)
        finally:
            self.process.kill()
            self._reader.join(LIMIT)

    def raw(self, method, path, body=None, headers=()):
        """Status, headers and text of any request."""
        request = urllib.request.Request(
            self.url + path, data=body, headers=dict(headers), method=method
        )
        try:
            answer = urllib.request.urlopen(request, timeout=LIMIT)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read().decode()
        assert answer.status < 500, (text, self.said)
        return answer.status, answer.headers, text

    def connection(self):
        """A connection of its own, kept alive."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)


@contextlib.contextmanager
def serving(model, *flags):
    """A server that is ended with the block."""
    server = Server(model, *flags)
    try:
        yield server
    finally:
        server.end()
