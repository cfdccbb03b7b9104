"""A process that has loaded TensorFlow and the trainer, and forks for each order."""

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from typing import NoReturn

from tests.loaded import environment, forked

# What most programs import. None of them defines a flag: that is for the programs themselves.
_MODULES = (
    "tensorflow",
    "trainer.chief.run",
    "trainer.replica",
    "trainer.evaluator",
    "trainer.chief.preflight",
    "tfps.export.loaded_model",
    "trainer.datasets.record_columns",
    "trainer.datasets.shard_scan",
    "google.cloud.storage",
)
_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 1 << 18  # of an order


class Server:
    """Forks for each order, and tells how the forks have ended."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)
        self._libc = ctypes.CDLL(None)

    def run(self) -> None:
        """Runs until nobody can order any more."""
        while True:
            for key, _ in self._selector.select():
                if key.data:
                    self._tell_end(key.fd, *key.data)
                elif not self._take_order():
                    return

    def _take_order(self) -> bool:
        text, files, _, _ = socket.recv_fds(self._orders, _MOST_BYTES, 3)
        if not text:
            return False
        order = json.loads(text)
        output, errors, told = files
        pid = os.fork()
        if not pid:
            self._become(order, output, errors, told)
        os.close(output)
        os.close(errors)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, told))
        return True

    def _become(self, order: dict, output: int, errors: int, told: int) -> NoReturn:
        os.setsid()
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.write(told, f"{os.getpid()}\n".encode())
        forked.run(order["argv"], order["environ"], output, errors)

    def _tell_end(self, file: int, pid: int, told: int) -> None:
        _, status, used = os.wait4(pid, 0)
        self._selector.unregister(file)
        os.close(file)
        seconds = used.ru_utime + used.ru_stime
        os.write(told, f"{os.waitstatus_to_exitcode(status)} {seconds}\n".encode())
        os.close(told)


def main() -> None:
    """Loads everything, then serves at the socket that is stdin."""
    os.environ.update(environment.DEFAULTS)
    # What TensorFlow says of GPUs, at level 2, would come before a program has opened its log.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    for module in _MODULES:
        importlib.import_module(module)
    gc.freeze()  # no fork looks through what was loaded, nor copies it by that
    forked.begin_here()
    orders = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    Server(orders).run()


if __name__ == "__main__":
    main()
