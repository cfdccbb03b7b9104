"""One running process of a task, which cannot outlive its launcher."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from cloud.local.command import Command
from tfps.errors import RunError, UserError

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 8192
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Process:
    """A started command, in its own session, its stdout and stderr in one pipe.

    Linux kills the process (SIGKILL) as soon as the launcher is gone, however that ended. What the
    process itself started and left behind in its group is killed when it ends.

    Attributes:
        output: File descriptor of the pipe's reading end; it does not block.
        log_start: Size in bytes of the task's log file before the start.
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
        self.output = self._popen.stdout.fileno()
        os.set_blocking(self.output, False)

    @property
    def pid(self) -> int:
        """The process id, which is its group's id too."""
        return self._popen.pid

    def poll(self) -> int | None:
        """Ends what is left of the group and returns the exit code, once the process has ended.

        Returns:
            None while it runs; then its exit code, or minus the number of the signal it died by.
        """
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


def _child_setup() -> Callable[[], None]:
    """What the child does between fork and exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    launcher = os.getpid()

    def setup() -> None:
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != launcher:  # it died before the line above took effect
            os._exit(128 + signal.SIGKILL)
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    return setup
