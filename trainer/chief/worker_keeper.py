"""Keeps the worker next to the chief: starts it, again when it dies, and ends with the chief.

    python -m trainer.chief.worker_keeper CHIEF < ORDERS

CHIEF is the chief's process id, ORDERS are JSON. It is a process of its own, since the chief begins
its program again in the same process, which its children outlive; and Linux ends a child with the
*thread* that started it, while the chief's must not wait for children. It loads no TensorFlow.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import posixpath
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO

from cloud.local.lifetime import end_with
from cloud.local.process import how_ended
from tfps.cluster.spec import CLUSTER_SPEC, TF_CONFIG, TF_CONFIG_FILE, Cluster, refuse_taken_port
from tfps.cluster.tf_config import chief_worker_environment
from tfps.errors import EXIT_OK, EXIT_USER
from trainer.chief.interruption import has_restarted
from trainer.console.json_lines import to_line

# Beside a process of niceness 0 on one core, Linux gives a process of 10 a tenth.
NICENESS = 10
_OOM_SCORE = 500  # of 1000: where memory is short, the worker ends before the chief
_LONGEST_WAIT = 8  # seconds before it is started again
_MODULE = "trainer.chief.worker_keeper"
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Orders:
    """What to start; `labels` is "" where log lines are for people."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    restarts: int
    labels: Mapping[str, str]


class WorkerKeeper:
    """Runs a worker until it need not be started again."""

    def __init__(self, orders: Orders):
        self._orders = orders
        self._is_ending = False

    def run(self) -> None:
        """Returns when the worker has ended for good."""
        for number in (signal.SIGTERM, signal.SIGINT):  # which the worker has got itself
            signal.signal(number, self._end)
        restarts = 0
        while code := self._once():
            if self._is_ending:
                return
            if code == EXIT_USER or restarts == self._orders.restarts:
                again = f" after {restarts} restarts" if restarts else ""
                self._say("ERROR", f"{how_ended(code)}{again} and stays away")
                return
            wait = min(2**restarts, _LONGEST_WAIT)
            restarts += 1
            limit = self._orders.restarts
            self._say("WARNING", f"{how_ended(code)}; restart {restarts} of {limit} in {wait} s")
            time.sleep(wait)

    def _once(self) -> int:
        """Starts the worker and waits for its end; 0, or its exit code or minus a signal."""
        has_prefix = not self._orders.labels
        process = subprocess.Popen(
            self._orders.command,
            env=dict(self._orders.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if has_prefix else None,
            stderr=subprocess.STDOUT if has_prefix else None,
            preexec_fn=functools.partial(end_with, os.getpid()),
        )
        if process.stdout:
            self._relay(process.stdout)
        return process.wait() or EXIT_OK

    def _relay(self, lines: IO[bytes]) -> None:
        """Passes on what the worker writes, each line with its name."""
        name = f"[{self._orders.name}] ".encode()
        with lines:
            for line in lines:
                try:
                    os.write(sys.stderr.fileno(), name + line)
                except BrokenPipeError:  # nobody reads what the chief writes; the worker continues
                    continue

    def _end(self, number: int, frame: object) -> None:
        self._is_ending = True

    def _say(self, severity: str, what: str) -> None:
        name, labels = self._orders.name, self._orders.labels
        text = f"{name} {what}"
        line = to_line(severity, text, labels) if labels else f"[{name}] {text}"
        os.write(sys.stderr.fileno(), f"{line}\n".encode())


def main(argv: Sequence[str]) -> None:
    """Keeps the worker of a chief; argv has the chief's process id, stdin what to start."""
    end_with(int(argv[1]))
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # where /proc cannot be written, the kernel chooses
        pathlib.Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    WorkerKeeper(Orders(**json.load(sys.stdin))).run()


def start(cluster: Cluster, restarts: int, labels: Mapping[str, str], log: str | None) -> None:
    """Starts the worker's keeper unless it runs; before stderr and the GPUs change.

    Call in the main thread. `labels` is "" where log lines are for people. `log` is the chief's
    native log, None for stderr.
    """
    if has_restarted():
        return
    own = cluster.of_chief_worker
    refuse_taken_port(own)
    command = [sys.executable, *sys.orig_argv[1:], "--progress=lines"]
    if log:
        file = posixpath.join(posixpath.dirname(log), f"{own.task.file_name}.log")
        command.append(f"--tensorflow_log={file}")
    environ = chief_worker_environment(os.environ, cluster)
    orders = Orders(own.task.label, command, environ, restarts, labels)
    # A file without a name, since an argument may not be as long.
    file_number = os.memfd_create("tfps-orders")
    with os.fdopen(file_number, "w+") as written:
        json.dump(dataclasses.asdict(orders), written)
        written.flush()
        written.seek(0)
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _MODULE, str(os.getpid())],
            {
                # Those who look for a task by its environment shall find the worker alone.
                name: value
                for name, value in os.environ.items()
                if name not in (TF_CONFIG, TF_CONFIG_FILE, CLUSTER_SPEC)
            },
            file_actions=[(os.POSIX_SPAWN_DUP2, file_number, 0)],
        )


def tell(cluster: Cluster) -> None:
    """Says that the chief works too, once log lines have a place to go."""
    own = cluster.of_chief_worker
    _log.info(
        "the chief works too: %s runs next to it at %s, niceness %d%s",
        own.name,
        own.address,
        NICENESS,
        "" if cluster.first_worker_leads else " (--nochief_works: without)",
    )


if __name__ == "__main__":
    main(sys.argv)
