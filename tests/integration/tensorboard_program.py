"""TensorBoard itself, asked over HTTP what it shows."""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

LIMIT_SECONDS = 120.0
_URL = re.compile(r"TensorBoard \S+ at (http://\S+?)/? ")
Points = list[tuple[float, int, float]]  # seconds since 1970, step, value


class TensorBoard:
    """A running TensorBoard."""

    def __init__(self, url: str):
        self._url = url

    def ask(self, path: str, **query: str) -> Any:
        """What it answers, of JSON."""
        url = f"{self._url}/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
            return json.load(answer)

    def session_groups(self) -> list[dict[str, Any]]:
        """What its HParams plugin has read of each run."""
        url = f"{self._url}/data/plugin/hparams/session_groups"
        statuses = [f"STATUS_{name}" for name in ("UNKNOWN", "SUCCESS", "FAILURE", "RUNNING")]
        asked = {"allowedStatuses": statuses, "startIndex": 0, "sliceSize": 100}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            return json.load(answer)["sessionGroups"]

    def tags(self) -> dict[str, set[str]]:
        """Names of the curves, by run."""
        found = self.ask("data/plugin/scalars/tags")
        return {run: set(tags) for run, tags in found.items()}

    def curve(self, run: str, tag: str) -> Points:
        """The points of a curve, as they are drawn."""
        found = self.ask("data/plugin/scalars/scalars", run=run, tag=tag)
        return [(when, step, value) for when, step, value in found]

    def wait_for(self, run: str) -> None:
        """Waits until it has read a run."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while run not in self.tags():
            assert time.monotonic() < deadline, f"TensorBoard shows no run {run}: {self.tags()}"
            time.sleep(0.2)


@contextlib.contextmanager
def tensorboard(directory: pathlib.Path | str, fast: bool) -> Iterator[TensorBoard]:
    """Starts TensorBoard on a directory, and ends it.

    Args:
        directory: What it shows, local or `gs://`.
        fast: Whether it reads by its data server, as where that is installed, or by Python.
    """
    command = [sys.executable, "-m", "tensorboard.main", f"--logdir={directory}", "--port=0"]
    command += ["--host=127.0.0.1", f"--load_fast={str(fast).lower()}", "--reload_interval=1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url, said = None, []
            while url is None:
                line = process.stderr.readline()
                assert line, f"TensorBoard has ended: {''.join(said)}"
                said.append(line)
                url = _URL.search(line)
            yield TensorBoard(url[1])
        finally:
            process.terminate()
            process.communicate(timeout=LIMIT_SECONDS)
