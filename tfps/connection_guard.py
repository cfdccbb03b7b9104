"""A process beside this one that breaks this one's connections to tasks that do not answer."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping

from tfps.connections import connections_to, keep_alive

_HAND_OVER_SECONDS = 1.0
_ROOT = pathlib.Path(__file__).parents[1]


class ConnectionGuard:
    """Keeps a `tfps.connection_breaker` informed of this process's connections.

    TensorFlow registers every new function with every task and holds Python's lock while it waits
    for their answers. When one was stopped, no thread of this process can help; another process
    can, for what is done to a copy of a socket is done to the socket.
    """

    def __init__(self, addresses: Mapping[str, str]):
        """Prepares it.

        Args:
            addresses: `host:port` by task name, such as "worker 1".
        """
        self._addresses = list(addresses.values())
        self._handed: set[str] = set()
        self._stop = threading.Event()
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts the process, unless it runs or there is nobody to be connected to."""
        if self._process is not None or not self._addresses:
            return
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        with other:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tfps.connection_breaker",
                    str(other.fileno()),
                    *self._addresses,
                ],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
        self._thread = threading.Thread(target=self._run, name="connection-guard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._stop.set()
            self._thread.join()
            self._channel.close()
            self._process.wait()

    def _run(self) -> None:
        # It goes on without the other process, should that have been killed.
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            self._hand_over()
            while not self._stop.wait(_HAND_OVER_SECONDS):
                self._hand_over()

    def _hand_over(self) -> None:
        """Tells which connections there are that were not there before, and which are gone."""
        open_now: set[str] = set()
        for address, connection in connections_to(self._addresses):
            try:
                name = f"{connection.getsockname()} {connection.getpeername()}"
                keep_alive(connection)
            except OSError:  # it has ended by itself
                continue
            open_now.add(name)
            if name not in self._handed:
                message = json.dumps([address, name]).encode()
                socket.send_fds(self._channel, [message], [connection.fileno()])
        for name in self._handed - open_now:
            self._channel.send(json.dumps(["", name]).encode())
        self._handed = open_now
