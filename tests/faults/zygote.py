"""A process that has loaded everything, and forks for each run of `trainer.task` that it is told.

Loading TensorFlow takes 4 s of CPU. Its threads begin with the first operation, so until then a
process can be forked.
"""

import functools
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Self

ROOT = pathlib.Path(__file__).parents[2]


class Zygote:
    """Runs programs one after the other, each in a process of its own. A context manager."""

    def __init__(self, library: pathlib.Path, log: pathlib.Path, environ: dict[str, str]):
        """Starts it.

        Args:
            library: Of `shim.c`.
            log: What it says itself.
            environ: Variables beside those of this process.
        """
        with log.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.zygote"],
                cwd=ROOT,
                env={**os.environ, **environ, "LD_PRELOAD": str(library)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def run(self, arguments: list[str], out: pathlib.Path, **order: Any) -> int:
        """Runs `trainer.task`; returns its exit code, that of a signal negative.

        Args:
            arguments: The flags.
            out: File for its stdout and stderr.
            **order: Arguments of `shim.misbehave` but the fault, which is given by name, and
                `patience`, seconds for which what may pass is tried again.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"arguments": arguments, "out": str(out), **order}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def _serve() -> None:
    library = os.environ.pop("LD_PRELOAD")  # for this process only
    import trainer.task  # noqa: I001 - it sets what TensorFlow reads as it loads
    import trainer.training
    import trainer.run  # noqa: F401
    import tests.visits  # noqa: F401

    from tfps.closures import Closures

    # One step in each turn of a loop: to trace ten is most of what a short run costs.
    Closures.__init__ = functools.partialmethod(Closures.__init__, unroll=1)
    os.environ["LD_PRELOAD"] = library
    gc.freeze()  # no fork looks through what was loaded, nor copies it by that
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            _run(order)
        print(_waited(child, order.get("limit", 240.0)), flush=True)


def _waited(child: int, limit: float) -> int:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGABRT)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(order: dict[str, Any]) -> None:
    import tensorflow as tf
    from absl import app  # noqa: F401

    from tests.faults import shim
    from tfps.storage import files
    from trainer import entry, field_flags, task

    try:
        out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        files.PATIENCE_SECONDS = order["patience"]
        # Better graphs would cost more than they save.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        fault = shim.FAULTS.get(order["fault"], shim.NOTHING)
        found = (order["roots"], fault, order["first"], order["last"])
        shim.misbehave(*found, order.get("told", ""), order.get("record", ""))
        sys.argv = ["trainer.task", *order["arguments"]]
        entry.run(task.main, has_lasting_threads=True, rewritten=field_flags.expand)
    except SystemExit as leave:
        os._exit(leave.code if isinstance(leave.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    _serve()
