"""Looks at the threads of a job in a window, and traces the job when the window is over."""

import pathlib
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from benchmarks import threads
from benchmarks.failure import Failed
from benchmarks.threads import Thread
from tfps.job_dir import cluster_addresses
from tfps.profiling import trace
from tfps.profiling.trace import TaskTrace

_LOOK_SECONDS = 1.0  # a lease's reader has threads that live as long as the lease, some 5 s
_JOBS = ("worker", "ps")
ONE_PROCESS = "chief-0"


class Taken(NamedTuple):
    """What a task took in the window, and what it did in the trace behind it.

    Attributes:
        cpu_seconds: CPU time of the process.
        threads: Of its threads, by their names, those that ended included: what all of a name took.
        trace: What it did, None where it was not traced.
    """

    cpu_seconds: float
    threads: Mapping[str, Thread]
    trace: TaskTrace | None


class StepWatch:
    """Reads what threads take in a window, and traces the job when it is over; see `Watch`."""

    def __init__(self, job_dir: pathlib.Path, trace_seconds: float, address: str | None = None):
        """Watches a job that is about to be started.

        Args:
            job_dir: The job's.
            trace_seconds: How long to trace.
            address: Where a job in one process can be traced; None for a cluster.
        """
        self._job_dir = job_dir
        self._trace_seconds = trace_seconds
        self._address = address
        self._before: dict[str, dict[int, Thread]] = {}
        self._latest: dict[str, dict[int, Thread]] = {}
        self._seconds: dict[str, float] = {}
        self._is_over = threading.Event()
        self._looking: threading.Thread | None = None

    def begin(self, tasks: Mapping[str, int]) -> None:
        """Begins to look at the threads; see `Watch`."""
        self._seconds = {task: threads.process_seconds(pid) for task, pid in tasks.items()}
        self._before = {task: threads.read(pid) for task, pid in tasks.items()}
        self._look(tasks)
        self._looking = threading.Thread(target=self._keep_looking, args=(tasks,), daemon=True)
        self._looking.start()

    def end(self, process: int, tasks: Mapping[str, int]) -> dict[str, Any]:
        """`taken`: by task, what was seen of it."""
        self._look(tasks)
        window = {
            task: threads.by_name(threads.between(self._before[task], self._latest[task]))
            for task in tasks
        }
        seconds = {
            task: threads.process_seconds(pid) - self._seconds[task] for task, pid in tasks.items()
        }
        traces = self._traces()
        self._is_over.set()
        if self._looking:
            self._looking.join()
        return {
            "taken": {
                task: Taken(
                    seconds[task],
                    window[task],
                    traces.get(task),
                )
                for task in tasks
            }
        }

    def _keep_looking(self, tasks: Mapping[str, int]) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self._look(tasks)

    def _look(self, tasks: Mapping[str, int]) -> None:
        for task, pid in tasks.items():
            self._latest.setdefault(task, {}).update(threads.read(pid))

    def _traces(self) -> dict[str, TaskTrace]:
        """What each task does for a while, by task."""
        addresses = dict(self._addresses())
        with tempfile.TemporaryDirectory(prefix="tfps-trace-") as directory:
            where = ",".join(f"grpc://{address}" for address in addresses.values())
            milliseconds = round(1000 * self._trace_seconds)
            tf.profiler.experimental.client.trace(where, directory, milliseconds)
            found = {}
            for task, address in addresses.items():
                name = f"{address.replace(':', '_')}.xplane.pb"
                paths = list(pathlib.Path(directory).rglob(name))
                if not paths:
                    raise Failed(f"{task} at {address} has left no trace")
                found[task] = trace.read(str(paths[0]))
            return found

    def _addresses(self) -> Iterator[tuple[str, str]]:
        if self._address:
            yield ONE_PROCESS, self._address
            return
        for task, address in cluster_addresses.read(str(self._job_dir)).items():
            if task.job in _JOBS:
                yield f"{task.job}-{task.index}", address


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
