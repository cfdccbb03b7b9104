"""Has a fork become the process of a command."""

import atexit
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import setproctitle

from cloud.local.lifetime import end_with, take_signals

_FIRST_FILE = 3  # behind stdin, stdout and stderr


class Order(NamedTuple):
    """A command and its whole environment."""

    argv: list[str]  # the interpreter, `-m`, a module and its arguments
    environ: dict[str, str]


def become(order: Order, output: Sequence[int], parent: int) -> NoReturn:
    """Runs a command in this process as `python -m` does, in a session of its own, and ends it.

    `output` are open files for stdout and stderr; every other is closed. The process ends with
    `parent`, whose fork it is.
    """
    code = 1
    try:
        os.setsid()
        end_with(parent)
        _take(os.open(os.devnull, os.O_RDONLY), *output)
        _begin(order)
        runpy.run_module(order.argv[2], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leave:
        code = _code_of(leave)
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _begin(order: Order) -> None:
    """Leaves nothing of the process whose fork this is but what it has loaded."""
    os.environ.clear()
    os.environ.update(order.environ)
    take_signals()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # Python's own does so by itself
    sys.argv[:] = order.argv[2:]
    sys.orig_argv[:] = order.argv
    setproctitle.setproctitle(" ".join(order.argv))


def _take(*files: int) -> None:
    """Makes three open files stdin, stdout and stderr."""
    kept = [os.dup(file) for file in files]  # one of them may be another's number
    for number, file in enumerate(kept):
        os.dup2(file, number)
    os.closerange(_FIRST_FILE, os.sysconf("SC_OPEN_MAX"))


def _code_of(leave: SystemExit) -> int:
    if leave.code is None or isinstance(leave.code, int):
        return leave.code or 0
    sys.stderr.write(f"{leave.code}\n")
    return 1


def _end(code: int) -> NoReturn:
    """Ends the process as the interpreter does, without going back through what forked it."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # it ends executors, and awaits threads
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)
