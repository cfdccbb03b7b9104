"""What `ConnectionGuard` runs: asks tasks, and breaks another process's connections to silent ones.

    python -m tfps.cluster.connection_breaker DESCRIPTOR HOST:PORT …

It reports its results to the other process, and ends when that does. It loads no TensorFlow.
"""

import contextlib
import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence

from tfps.cluster.liveness import Prober, ProbeResult
from tfps.cluster.monitor import HealthProber, TaskMonitor
from tfps.job_dir.task_name import TaskName

LONGEST_REPORT = 1 << 16  # bytes of a message
_LONGEST_MESSAGE = 4096  # from the other process
_MOST_RESULTS = 100  # in a report; an address has at most some 270 bytes
_REPORT_SECONDS = 1.0


class ReportingProber:
    """Sends what a prober sees through a channel, and that it still looks, every second.

    Each packet is a JSON list of results, without identities. An answer of a task that answered
    before is no news. Of each task only the newest result waits for a receiver that does not read.
    """

    def __init__(self, prober: HealthProber, channel: socket.socket):
        self._prober = prober
        self._channel = channel
        self._answering: set[str] = set()
        self._news: dict[str, ProbeResult] = {}
        self._lock = threading.Lock()
        self._has_news = threading.Event()

    @property
    def reported_until(self) -> float:
        return self._prober.reported_until

    def start(self, on_result: Callable[[ProbeResult], None]) -> None:
        def record(result: ProbeResult) -> None:
            self._record(result)
            on_result(result)

        self._prober.start(record)
        threading.Thread(target=self._run, name="report", daemon=True).start()

    def stop(self) -> None:
        """Ends the prober; the channel's end ends the reports."""
        self._prober.stop()

    def _record(self, result: ProbeResult) -> None:
        with self._lock:
            if not result.answers:
                self._answering.discard(result.address)
            elif result.address in self._answering:
                return
            else:
                self._answering.add(result.address)
            self._news[result.address] = result
        self._has_news.set()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the receiver has ended
            while True:
                self._has_news.wait(_REPORT_SECONDS)
                with self._lock:
                    taken = [self._news.pop(task) for task in list(self._news)[:_MOST_RESULTS]]
                    if not self._news:
                        self._has_news.clear()
                results = [(x.address, x.liveness.name, x.since, x.when) for x in taken]
                self._channel.sendall(json.dumps(results).encode())


class ConnectionBreaker:
    """Copies of another process's connections, by the task's address and a name of their own."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, socket.socket]] = {}
        self._lock = threading.Lock()

    def follow(self, channel: socket.socket) -> None:
        """Takes copies, and closes those of connections that have ended, until the channel ends."""
        while True:
            message, descriptors, *_ = socket.recv_fds(channel, _LONGEST_MESSAGE, 1)
            if not message:
                break
            address, name = json.loads(message)
            with self._lock:
                if former := self._held.pop(name, None):
                    former[1].close()
                if descriptors:
                    self._held[name] = address, socket.socket(fileno=descriptors[0])
        with self._lock:
            for _, connection in self._held.values():
                connection.close()
            self._held.clear()

    def hang_up(self, address: str) -> None:
        """Breaks the connections to a task, so that calls that wait for it fail at once."""
        with self._lock:
            for place, connection in self._held.values():
                if place == address:
                    with contextlib.suppress(OSError):  # it has ended by itself
                        connection.shutdown(socket.SHUT_RDWR)


def main(argv: Sequence[str]) -> None:
    """Watches tasks for another process."""
    # A terminal and Slurm signal both processes; this one ends with the other.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)  # the other process logs what is reported to it
    breaker = ConnectionBreaker()
    addresses = argv[2:]
    with socket.socket(fileno=int(argv[1])) as channel, contextlib.suppress(ConnectionError):
        prober = ReportingProber(Prober(addresses), channel)
        # Which tasks they are the other process knows.
        tasks = {TaskName("task", index): address for index, address in enumerate(addresses)}
        monitor = TaskMonitor(tasks, prober, hang_up=breaker.hang_up)
        monitor.start()
        breaker.follow(channel)


if __name__ == "__main__":
    main(sys.argv)
