"""Forks a task for each order: `python -m cloud.local.forking [MODULE]`.

TensorFlow takes seconds to load, most of what a short run costs. This process loads a module once;
its forks have it, and are processes of their own in all else. Orders come by the socket that is
stdin; it ends, and its forks with it, once nobody can order any more.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from typing import NamedTuple

import setproctitle

from cloud.local import fork
from cloud.local.fork import Order

LOADED = b"loaded"
_FILES = 5  # of an order, at most: its text, a socket for its answers, stdout, stderr and a pipe
_ANSWER_BYTES = 64  # at most


class Fork(NamedTuple):
    """A fork that was ordered."""

    pid: int  # its group's id, too
    handle: int  # an open file that stands for the process
    answers: socket.socket  # there its end comes: see `end_of`


class End(NamedTuple):
    """How a fork has ended."""

    code: int  # exit code, or minus a signal's number
    cpu_seconds: float


def order(
    orders: socket.socket, what: Order, output: int, errors: int, reading: int | None = None
) -> Fork:
    """Has the process at the other end of `orders` fork; two open files are stdout and stderr.

    Where these are a pipe, `reading` may be its other end. It is open there until the fork has
    ended: once this process is gone, the fork is killed before it sees that nobody reads.

    Raises:
        ConnectionError: It is gone.
    """
    answers, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = () if reading is None else (reading,)
    with other, os.fdopen(os.memfd_create("order"), "w") as file:
        json.dump(what, file)
        file.flush()
        socket.send_fds(orders, [b"\0"], [file.fileno(), other.fileno(), output, errors, *kept])
    said, handles, _, _ = socket.recv_fds(answers, _ANSWER_BYTES, 1)
    if not said:
        answers.close()
        raise ConnectionError("the process that forks is gone")
    [handle] = handles
    return Fork(int(said), handle, answers)


def end_of(answers: socket.socket) -> End:
    """How a fork has ended, from its answers; waits for it unless these do not block."""
    try:
        said = answers.recv(_ANSWER_BYTES)
    except ConnectionError:
        said = b""
    if not said:  # the process that forks is gone, and Linux has killed its forks
        return End(-signal.SIGKILL, 0.0)
    code, seconds = said.split()
    return End(int(code), float(seconds))


class ForkServer:
    """Forks for each order, and tells how the forks have ended."""

    def __init__(self, orders: socket.socket):
        self._orders = orders
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)

    def run(self) -> None:
        """Runs until nobody can order any more."""
        self._orders.send(LOADED)
        while True:
            for key, _ in self._selector.select():
                if key.data:
                    self._tell_end(key.fd, *key.data)
                elif not self._take_order():
                    return

    def _take_order(self) -> bool:
        _, files, _, _ = socket.recv_fds(self._orders, 1, _FILES)
        if not files:
            return False
        order, telling, *output = files[:4]
        told, parent = socket.socket(fileno=telling), os.getpid()
        pid = os.fork()
        if not pid:
            fork.become(_read(order), output, parent)
        for file in (order, *output):
            os.close(file)
        ended = os.pidfd_open(pid)
        socket.send_fds(told, [str(pid).encode()], [ended])
        self._selector.register(ended, selectors.EVENT_READ, (pid, told, files[4:]))
        return True

    def _tell_end(self, ended: int, pid: int, told: socket.socket, kept: list[int]) -> None:
        # It stays a zombie until its group is killed: nobody else gets its id meanwhile.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):  # it had no group of its own yet
            os.killpg(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
        self._selector.unregister(ended)
        for file in (ended, *kept):
            os.close(file)
        said = f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}"
        with told:
            told.send(said.encode())


def _read(order: int) -> Order:
    os.lseek(order, 0, os.SEEK_SET)
    with os.fdopen(order, "rb") as file:
        return Order(*json.load(file))


def main() -> None:
    """Loads the module that is named, and serves."""
    orders = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    # It looks for where the title is, which no fork finds once it has another environment.
    setproctitle.getproctitle()
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # no fork looks through what was loaded, nor copies it by that
    ForkServer(orders).run()


if __name__ == "__main__":
    main()
