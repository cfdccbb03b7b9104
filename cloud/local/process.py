"""One running process of a task, which cannot outlive its launcher."""

import ctypes
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
from collections.abc import Callable, Iterable

from cloud.local.command import Command
from tfps.errors import RunError, UserError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: a child may not after its fork
_TAIL_BYTES = 8192
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


class Process:
    """A started command, in its own session, its stdout and stderr in one pipe.

    Linux kills the process (SIGKILL) as soon as the launcher is gone, however that ended. What the
    process itself started and left behind in its group is killed when it ends.
    """

    def __init__(self, command: Command):
        """Starts the command.

        Must be called in the main thread: Linux ties the death signal to the *thread* that started
        the child, so a child started in a passing thread would be killed when that thread ends.
        """
        check_system()
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("processes are started in the main thread only")
        self.command = command
        self.log_start = command.log.stat().st_size if command.log.is_file() else 0
        # Until the child has its own signal handling, a signal to the launcher's group must not run
        # the launcher's handlers in the child: both would report it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            self._popen = subprocess.Popen(
                command.argv,
                env=dict(command.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                preexec_fn=_child_setup(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise RunError(f"cannot start {command.name}: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._popen.stdout is not None
        self.output = self._popen.stdout.fileno()  # where the pipe is read; it does not block
        os.set_blocking(self.output, False)

    @property
    def pid(self) -> int:
        """The process id, which is its group's id too."""
        return self._popen.pid

    def poll(self) -> int | None:
        """Once the process has ended, kills its group; exit code, or minus a signal's number."""
        if self._popen.returncode is None:
            # The ended process stays a zombie until the group is killed, so that its id cannot
            # meanwhile become someone else's.
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self.pid, flags) is None:
                return None
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
        return self._popen.returncode

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
        if self._popen.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process and its group, unless it has ended."""
        if self._popen.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kills, reaps and closes whatever there still is."""
        self.kill()
        self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()


def check_system() -> None:
    """Refuses a system that cannot promise to end the tasks with the launcher."""
    if sys.platform != "linux":
        raise UserError(
            f"the local launcher needs Linux, not {sys.platform}: only there the kernel ends the "
            "tasks when the launcher dies; use a Linux machine or container"
        )


def end_with(parent: int) -> None:
    """Has Linux kill this process when the thread of its parent that started it ends."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before the line above took effect
        os._exit(128 + signal.SIGKILL)


def how_ended(code: int) -> str:
    """What an exit code of `subprocess` says, for people."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no name
        return f"was killed by signal {-code}"


def _child_setup() -> Callable[[], None]:
    """What the child does between fork and exec."""
    launcher = os.getpid()

    def setup() -> None:
        end_with(launcher)
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    return setup
