"""What `ConnectionGuard` runs: asks tasks, and breaks another process's connections to silent ones.

    python -m tfps.cluster.connection_breaker DESCRIPTOR HOST:PORT …

It tells the other process what it sees, and ends when that does. It loads no TensorFlow.
"""

import contextlib
import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.prober import Prober
from tfps.cluster.sighting_report import SightingReport
from tfps.job_dir.task_name import TaskName

_LONGEST_MESSAGE = 4096


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
    logging.disable(logging.CRITICAL)  # the other process tells what it sees itself
    breaker = ConnectionBreaker()
    addresses = argv[2:]
    with socket.socket(fileno=int(argv[1])) as channel, contextlib.suppress(ConnectionError):
        report = SightingReport(Prober(addresses), channel)
        # Which tasks they are the other process knows.
        tasks = {TaskName("task", index): address for index, address in enumerate(addresses)}
        monitor = TaskMonitor(tasks, report, hang_up=breaker.hang_up)
        monitor.start()
        breaker.follow(channel)


if __name__ == "__main__":
    main(sys.argv)
