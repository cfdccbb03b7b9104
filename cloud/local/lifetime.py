"""What a process takes and leaves of the one that started it: signals, and its end."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: a child may not after its fork
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_with(parent: int) -> None:
    """Has Linux kill this process when the thread of its parent that started it ends."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before the line above took effect
        os._exit(128 + signal.SIGKILL)


def take_signals() -> None:
    """Handles signals as a program that has just begun."""
    for number in (*STOP_SIGNALS, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
