"""Programs and errors as they are shown in a notebook."""

import os
import signal
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any

from tfps.errors import RunError, UserError, printable

# After an interrupt: the launcher gives the chief 30 s to save, and every task 5 s to end.
_END_SECONDS = 60.0
# Variables by which Jupyter has programs draw in colours, and over lines that they have written.
_FORCE = ("FORCE_COLOR", "CLICOLOR_FORCE")


def prepare() -> None:
    """Loads TensorFlow without its notices, and has errors told in a line, as programs do.

    A `UserError` or a `RunError` ends its cell by that line, without a traceback.
    """
    from IPython import get_ipython  # a program has none

    from trainer.console import quiet_tensorflow  # noqa: F401 - it loads TensorFlow

    def tell(
        shell: Any,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType,
        tb_offset: int | None = None,
    ) -> None:
        sys.stderr.write(f"error: {printable(str(error))}\n")

    if shell := get_ipython():
        shell.set_custom_exc((UserError, RunError), tell)


def run(module: str, *flags: str, end_seconds: float = _END_SECONDS) -> None:
    """Runs a program as `python -m` does, and shows each line as soon as it is written.

    Interrupting the cell interrupts the program, as Ctrl-C does in a terminal: a cluster saves a
    checkpoint and ends all its tasks, and is killed after `end_seconds`. Its last lines are shown
    before this is interrupted, too. Where the notebook's process is killed, the program's output
    breaks, which ends it.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *flags],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="backslashreplace",
        process_group=0,  # Jupyter signals its own group, and a second signal would be another word
    )
    try:
        _relay(process)
    except KeyboardInterrupt:
        _interrupt(process, end_seconds)
        raise
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    if process.returncode:
        raise RunError(
            f"{module} ended with exit code {process.returncode}; its lines above say why"
        )


def _environment() -> dict[str, str]:
    """Variables for a program that writes lines, each as soon as it has it."""
    kept = {name: value for name, value in os.environ.items() if name not in _FORCE}
    return {**kept, "PYTHONUNBUFFERED": "1"}


def _relay(process: "subprocess.Popen[str]") -> None:
    """Shows all lines until the output ends."""
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
    process.wait()


def _interrupt(process: "subprocess.Popen[str]", end_seconds: float) -> None:
    """Interrupts a program and shows its last lines; a further interrupt is passed on as well."""
    killer = threading.Timer(end_seconds, process.kill)
    killer.start()
    try:
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                _relay(process)
            except KeyboardInterrupt:
                continue
    finally:
        killer.cancel()
