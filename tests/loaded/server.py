"""A process that has loaded TensorFlow and the trainer, and forks for each order."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from cloud.local import fork, forking
from cloud.local.fork import Order
from tests.loaded import environment, started

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
_loaded: dict[str, str] = {}  # the environment in which everything was loaded
_Popen, _begin = subprocess.Popen, fork._begin


def main() -> None:
    """Loads everything, then serves at the socket that is stdin."""
    os.environ.update(environment.DEFAULTS)
    # What TensorFlow says of GPUs, at level 2, would come before a program has opened its log.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    for module in _MODULES:
        importlib.import_module(module)
    _loaded.update(os.environ)
    fork._begin = _begin_here
    forking.main()


def _begin_here(order: Order) -> None:
    """Begins a program that others find, and whose launcher finds everything loaded, too."""
    environ = environment.DEFAULTS | order.environ
    _begin(Order(order.argv, environ))
    started.note(order.argv, order.environ)
    subprocess.Popen = _Started


class _Started(_Popen):
    """A process; what forks tasks is a fork of this process, where that is the same."""

    def __new__(cls, argv: Sequence[str], **options: Any) -> Any:
        is_starter = list(argv[1:3]) == ["-m", forking.__name__]
        if is_starter and environment.is_same(options["env"], _loaded):
            return _Fork(argv, **options)
        return super().__new__(cls)


class _Fork:
    """What `cloud.local.process` uses of a `subprocess.Popen`."""

    def __init__(self, argv: Sequence[str], **options: Any) -> None:
        self._pid = os.fork()
        if not self._pid:
            self._become(Order(list(argv), dict(options["env"])), **options)

    def kill(self) -> None:
        """As `subprocess.Popen.kill` does."""
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        """As `subprocess.Popen.wait` does."""
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _become(self, order: Order, **options: Any) -> NoReturn:
        try:
            os.setsid()
            options["preexec_fn"]()
            fork._take(options["stdin"], 1, 2)
            signal.set_wakeup_fd(-1)
            _begin_here(order)
            sys.argv[:] = order.argv[2:]
            forking.main()
        finally:
            fork._end(0)


if __name__ == "__main__":
    main()
