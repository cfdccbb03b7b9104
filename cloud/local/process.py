"""One running process of a task, which cannot outlive its launcher."""

import contextlib
import functools
import heapq
import itertools
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from cloud.local import forking, lifetime
from cloud.local.command import Command
from cloud.local.fork import Order
from cloud.local.forking import Fork
from tfps.errors import RunError, UserError

_TAIL_BYTES = 8192
_STARTER = "the process that starts all tasks"


class Events:
    """Calls back when a file descriptor has data, a signal has come or a time is reached.

    A context manager for the main thread; it puts the former signal handlers back.
    """

    def __init__(self, signals: Iterable[signal.Signals], on_signal: Callable[[int], None]):
        self._on_signal = on_signal
        self._selector = selectors.DefaultSelector()
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._read_signals)
        self._former_fd = signal.set_wakeup_fd(self._waker.fileno())
        self._former = {number: signal.signal(number, _noted) for number in signals}

    def watch(self, descriptor: int, on_data: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, on_data)

    def forget(self, descriptor: int) -> None:
        """Stops watching `descriptor`, if it is watched."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), action))

    def wait(self) -> None:
        """Waits for the next event and makes the calls that are due."""
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, _ in self._selector.select(timeout):
            if self._selector.get_map().get(key.fd) is key:  # not forgotten by a call before it
                key.data()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self._selector.close()
        self._wake.close()
        self._waker.close()

    def _read_signals(self) -> None:
        for number in self._wake.recv(4096):
            self._on_signal(number)


def _noted(number: int, frame: object) -> None:
    """Python's half of a handler; the signal is read from the wakeup descriptor."""


class TaskStarter:
    """A process whose forks tasks are (`cloud.local.forking`); a context manager.

    Linux kills it (SIGKILL), and the tasks with it, as soon as the launcher is gone, however that
    ended.
    """

    def __init__(self, module: str | None, environ: Mapping[str, str]):
        """Starts it, for it to load a module in an environment.

        Must be called in the main thread: Linux ties the death signal to the *thread* that started
        the child, so a child started in a passing thread would be killed when that thread ends.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("processes are started in the main thread only")
        self._orders, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", forking.__name__, *([module] if module else [])],
                env=dict(environ),
                stdin=orders.fileno(),
                start_new_session=True,
                preexec_fn=functools.partial(lifetime.end_with, os.getpid()),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise RunError(f"cannot start tasks: {error}") from error
        finally:
            orders.close()

    def wait(self) -> None:
        """Waits until it has loaded.

        Raises:
            RunError: It ended instead; why stands on stderr.
        """
        if self._orders.recv(len(forking.LOADED)) != forking.LOADED:
            raise RunError(f"{_STARTER} has ended while it loaded; its message is above")

    def start(self, order: Order, output: int, reading: int) -> Fork:
        """Starts a task that writes to a pipe; `output` and `reading` are its two ends.

        Raises:
            OSError: It cannot be started.
        """
        return forking.order(self._orders, order, output, output, reading)

    def __enter__(self) -> "TaskStarter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._orders.close()
        self._popen.kill()  # it may be loading
        self._popen.wait()


class Process:
    """A started command, in its own session, its stdout and stderr in one pipe.

    What the process itself started and left behind in its group is killed when it ends.
    """

    def __init__(self, command: Command, starter: TaskStarter):
        """Starts the command."""
        self.command, self.began = command, time.monotonic()
        self.log_start = command.log.stat().st_size if command.log.is_file() else 0
        self.output, writing = os.pipe()  # where the pipe is read; it does not block
        os.set_blocking(self.output, False)
        try:
            order = Order(list(command.argv), dict(command.environ))
            self.pid, self._handle, self._answers = starter.start(order, writing, self.output)
        except OSError as error:
            os.close(self.output)
            raise RunError(f"cannot start {command.name}: {_STARTER} is gone") from error
        finally:
            os.close(writing)
        self._answers.setblocking(False)
        self.end = self._answers.fileno()  # where there is something once the process has ended
        self._code: int | None = None
        self._is_closed = False

    def poll(self) -> int | None:
        """Once the process and its group have ended: exit code, or minus a signal's number."""
        if self._code is None:
            with contextlib.suppress(BlockingIOError):
                self._code = forking.end_of(self._answers).code
        return self._code

    def log_tail(self, count: int) -> list[str]:
        """The last so many lines that the process has written to its log file."""
        with self.command.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = self.log_start if size >= self.log_start else 0  # begun again
            file.seek(max(start, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "backslashreplace")
        return text.splitlines()[-count:]

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process, unless it has ended."""
        if self._is_closed:  # as one that was stopped, killed and started again meanwhile
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Kills the process, and with it its group, unless it has ended."""
        self.send(signal.SIGKILL)

    def close(self) -> None:
        """Kills, awaits and closes whatever there still is."""
        self.kill()
        if self._code is None:
            self._answers.setblocking(True)
            self.poll()
        self._is_closed = True
        self._answers.close()
        os.close(self._handle)
        os.close(self.output)


def check_system() -> None:
    """Refuses a system that cannot promise to end the tasks with the launcher."""
    if sys.platform != "linux":
        raise UserError(
            f"the local launcher needs Linux, not {sys.platform}: only there the kernel ends the "
            "tasks when the launcher dies; use a Linux machine or container"
        )


def how_ended(code: int) -> str:
    """What an exit code of `subprocess` says, for people."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no name
        return f"was killed by signal {-code}"
