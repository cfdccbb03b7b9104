"""Watches from the chief whether the other tasks' ports accept connections."""

import dataclasses
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping

from tfps.errors import UserError

PROBE_SECONDS = 1.0
LOST_SECONDS = 3.0
_CONNECT_SECONDS = 2.0
_log = logging.getLogger(__name__)


def is_reachable(address: str) -> bool:
    """Whether something accepts a TCP connection at `host:port`."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def wait_until_reachable(addresses: Mapping[str, str], limit_seconds: float) -> None:
    """Waits until every task accepts connections.

    Args:
        addresses: `host:port` by task name, such as "worker 0".
        limit_seconds: How long to wait for all of them together.

    Raises:
        UserError: If some do not in time; names each with its address.
    """
    deadline = time.monotonic() + limit_seconds
    missing = dict(addresses)
    while missing:
        missing = {task: address for task, address in missing.items() if not is_reachable(address)}
        if missing and time.monotonic() > deadline:
            tasks = ", ".join(f"{task} at {address}" for task, address in missing.items())
            raise UserError(
                f"not reachable after {limit_seconds:.0f} s: {tasks}; start them, or correct their "
                "addresses in TF_CONFIG, or allow more time with --connect_seconds"
            )
        if missing:
            time.sleep(0.2)


@dataclasses.dataclass
class Failure:
    """One loss of a task.

    Attributes:
        task: Its name, such as "worker 0".
        what: What was seen.
        when: Seconds since the epoch at which it was seen.
        back_after: Seconds until it accepted connections again; None while it has not.
    """

    task: str
    what: str
    when: float
    back_after: float | None = None


class TaskWatch:
    """A thread that probes every task and keeps the list of failures."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        probe: Callable[[str], bool] = is_reachable,
        interval_seconds: float = PROBE_SECONDS,
    ):
        self.failures: list[Failure] = []
        self._addresses = addresses
        self._probe = probe
        self._interval = interval_seconds
        self._down: dict[str, Failure] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="task-watch", daemon=True)

    def start(self) -> None:
        """Begins to probe, unless it has begun."""
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread; tasks that go down from now on are no failures."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def down(self, job: str) -> list[str]:
        """Tasks of a job that are not reachable now, as "ps 1 at host:port"."""
        return [f"{t} at {self._addresses[t]}" for t in list(self._down) if t.startswith(job)]

    def lost(self, job: str) -> list[str]:
        """Tasks of a job that have not been reachable for `LOST_SECONDS`, in the same form."""
        since = time.time() - LOST_SECONDS
        return [
            f"{task} at {self._addresses[task]}"
            for task, failure in list(self._down.items())
            if task.startswith(job) and failure.when < since
        ]

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            for task, address in self._addresses.items():
                self._note(task, self._probe(address))

    def _note(self, task: str, reachable: bool) -> None:
        failure = self._down.get(task)
        if failure is None and not reachable:
            self._down[task] = Failure(task, "its port refused connections", time.time())
            self.failures.append(self._down[task])
            _log.warning("%s at %s is lost", task, self._addresses[task])
        elif failure is not None and reachable:
            failure.back_after = time.time() - failure.when
            del self._down[task]
            _log.info("%s is back after %.1f s", task, failure.back_after)
