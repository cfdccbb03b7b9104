"""Starts a Google Cloud Storage of one machine."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import urllib.request
from typing import Any, Self

from tests.local_cloud.certificates import private_key
from tests.local_cloud.settings import Settings
from tests.project import ROOT


class LocalCloud:
    """A server of objects behind a proxy, in a process of its own.

    TensorFlow's gs:// client and google-cloud-storage both reach it by `environ`, with the real
    protocol and the real names of hosts. A context manager: leaving it ends the process.

    Attributes:
        environ: Variables for the programs that are to use it.
    """

    def __init__(
        self, directory: pathlib.Path, *buckets: str, server: str = "gcp-storage-emulator"
    ) -> None:
        """Starts it.

        Args:
            directory: For certificates and credentials.
            buckets: Names of the buckets that exist.
            server: One of `servers.START`.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.local_cloud", str(directory), server, *buckets],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self.close()
            raise RuntimeError("the local cloud did not start; see its stderr")
        self._url = f"http://127.0.0.1:{port}"
        self.settings = Settings()
        account = {
            "type": "service_account",
            "project_id": "tests",
            "private_key_id": "1",
            "private_key": private_key(),
            "client_email": "tests@tests.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": "https://oauth2.googleapis.com/token",
        }
        credentials = directory / "credentials.json"
        credentials.write_text(json.dumps(account))
        self.environ = {
            "https_proxy": self._url,
            "no_proxy": "127.0.0.1,localhost",
            "CURL_CA_BUNDLE": str(directory / "ca.pem"),
            "REQUESTS_CA_BUNDLE": str(directory / "ca.pem"),
            "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
            "NO_GCE_CHECK": "true",
        }

    def set(self, **changes: Any) -> None:
        """Changes how it behaves; see `Settings`. What was counted before is forgotten."""
        self.settings = dataclasses.replace(self.settings, **changes)
        self._ask("/control", json.dumps(dataclasses.asdict(self.settings)).encode())

    def counted(self) -> dict[str, dict[str, int]]:
        """Requests and bytes by kind, and faults by name, since this was asked last."""
        found: dict[str, dict[str, int]] = self._ask("/counts")
        return found

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        # Not through the proxy that the environment may name: this is the proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self._url + path, body, timeout=30) as answer:
            return json.load(answer)
