"""A process next to this one that asks the tasks, and breaks connections to silent ones."""

import contextlib
import json
import logging
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

from tfps.cluster.connection_breaker import LONGEST_REPORT
from tfps.cluster.liveness import Liveness, ProbeResult
from tfps.cluster.sockets import Connections, keep_alive
from tfps.job_dir.task_name import TaskName

_HAND_OVER_SECONDS = 1.0
_AGAIN_SECONDS = 1.0  # before another process is started
_START_SECONDS = 60.0  # until the first report, on a machine with much else to do
_SILENT_SECONDS = 10.0  # after which the process counts as lost; it reports every second
_log = logging.getLogger(__name__)
_ROOT = pathlib.Path(__file__).parents[2]


class ConnectionGuard:
    """Hands this process's connections to a `connection_breaker`, and receives its reports.

    TensorFlow registers every new function with every task and holds Python's lock while it waits
    for their answers. When one was stopped, no thread of this process can help; another process
    can, for what is done to a copy of a socket is done to the socket. Since it must know which
    tasks answer, it asks them for this process too. It is started again should it be lost.
    """

    def __init__(self, addresses: Mapping[TaskName, str]):
        self._addresses = list(addresses.values())
        self._connections = Connections(self._addresses)
        self._handed: set[str] = set()
        self._stop = threading.Event()
        self.reported_until = 0.0
        self._process: subprocess.Popen | None = None

    def start(
        self,
        # Without a listener the guard only breaks connections.
        on_result: Callable[[ProbeResult], None] = lambda result: None,
    ) -> None:
        """Starts the process, unless it runs or there is nobody to be connected to.

        `on_result` gets, in another thread, every result but answers of tasks that answered before.
        """
        if self._process is not None or not self._addresses:
            return
        self._on_result = on_result
        self._start_process()
        self._thread = threading.Thread(target=self._run, name="connection-guard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._process is not None:
            self._stop.set()
            with contextlib.suppress(OSError):  # it has ended by itself
                self._channel.shutdown(socket.SHUT_RD)  # which wakes the thread
            self._thread.join()
            self._end()

    def _start_process(self) -> None:
        self._handed = set()  # a new process knows nothing yet
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_SILENT_SECONDS)
        path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        with other:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tfps.cluster.connection_breaker",
                    str(other.fileno()),
                    *self._addresses,
                ],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                # By itself gRPC logs that a server has ended.
                env={"GRPC_VERBOSITY": "ERROR", **os.environ, "PYTHONPATH": path},
            )

    def _end(self) -> None:
        assert self._process is not None
        self._channel.close()
        try:
            self._process.wait(_SILENT_SECONDS)
        except subprocess.TimeoutExpired:  # it was stopped
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        is_running = True
        while not self._stop.is_set():
            try:
                if not is_running:
                    self._start_process()
                is_running = True
                self._serve()
            except OSError as error:
                if self._stop.is_set():
                    return
                _log.warning("health prober exited (%s); restarting it", error)
                assert self._process is not None
                self._process.kill()
                self._end()
                is_running = False
                self._stop.wait(_AGAIN_SECONDS)

    def _serve(self) -> None:
        """Hands connections over and listens until it is to stop."""
        last_message, limit = time.monotonic(), _START_SECONDS
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        due = last_message
        while not self._stop.is_set():
            if time.monotonic() >= due:
                self._hand_over()
                due = time.monotonic() + _HAND_OVER_SECONDS
            if poll.poll(1000 * max(0.0, due - time.monotonic())):
                self._listen()
                last_message, limit = time.monotonic(), _SILENT_SECONDS
                if not poll.poll(0):
                    self.reported_until = last_message
            # What came while this thread could not run was not there yet when it asked before.
            elif time.monotonic() - last_message > limit and not poll.poll(0):
                raise TimeoutError(f"nothing came from it for {limit:.0f} s")

    def _listen(self) -> None:
        message = self._channel.recv(LONGEST_REPORT)
        if not message:
            raise ConnectionError("it has ended")
        for address, liveness, since, when in json.loads(message):
            self._on_result(ProbeResult(address, Liveness[liveness], since, when))

    def _hand_over(self) -> None:
        """Hands new connections over, and reports those that are gone."""
        open_now: set[str] = set()
        for address, connection in self._connections.open_now():
            try:
                name = f"{connection.getsockname()} {connection.getpeername()}"
                if name not in self._handed:
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
