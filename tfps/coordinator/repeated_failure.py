"""Notices a closure that fails in the same way on every worker, while every task answers.

`ClusterCoordinator` takes some errors, such as "unknown device", for the loss of a worker. It
connects all tasks again and has some worker run the closure again, without an end. Its log alone
tells.
"""

import collections
import logging
import re
import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.cluster import failures
from tfps.cluster.monitor import TaskMonitor
from tfps.errors import RunError

# Between two failures of a worker TensorFlow has reached every task of the cluster again.
_TIMES = 3
_WORKER = re.compile(r"/job:worker/replica:0/task:(\d+)")


class ClosureFailure(NamedTuple):
    """A closure that has failed, and that TensorFlow has run again."""

    worker: int
    error: tf.errors.OpError


class FailureLog:
    """Learns of failed closures from TensorFlow's log, as long as this object is kept."""

    def __init__(self) -> None:
        self._failures: collections.deque[ClosureFailure] = collections.deque()
        handler, logger = _Handler(self._failures), tf.get_logger()
        logger.addHandler(handler)
        weakref.finalize(self, logger.removeHandler, handler)

    def take(self) -> list[ClosureFailure]:
        """Those that it has learned of since the last call, oldest first."""
        return [self._failures.popleft() for _ in range(len(self._failures))]


class _Handler(logging.Handler):
    """Notes what is logged of a worker's device and an error."""

    def __init__(self, failures: collections.deque[ClosureFailure]):
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and len(record.args) == 3:
            device, error, _ = record.args
            worker = _WORKER.fullmatch(str(device))
            if worker and isinstance(error, tf.errors.OpError):
                self._failures.append(ClosureFailure(int(worker[1]), error))


class RepeatedFailure:
    """Counts how often each worker has failed in the same way, with nothing trained in between."""

    def __init__(self, workers: Sequence[int], monitor: TaskMonitor):
        self._workers = len(workers)
        self._monitor = monitor
        self._losses = 0
        self._counts: dict[int, tuple[str, int]] = {}  # by worker, with the failure's first line
        self._lost_ps: Exception | None = None

    def refuse_lost_ps(self) -> None:
        """Ends the run where a failure that was noted last tells of a lost ps."""
        if self._lost_ps:
            raise self._lost_ps

    def note(self, failed: Iterable[ClosureFailure]) -> None:
        """Notes failures, those alone that no lost task can explain."""
        for worker, error in failed:
            self._lost_ps = failures.lost_ps_behind(error) or self._lost_ps
            if not failures.is_of_lost_peer(error):
                line = failures.first_line(error)
                before, count = self._counts.get(worker, (line, 0))
                self._counts[worker] = line, 1 + (count if _same(before, line) else 0)
        if self._is_task_lost():
            self._counts.clear()

    def forget(self) -> None:
        """Begins to count again, since a closure has got somewhere."""
        self._counts.clear()
        self._lost_ps = None

    def refuse(self, doing: str) -> None:
        """Ends the run where every worker has failed several times in the same way.

        Args:
            doing: What the closures do, such as "training epoch 1".
        """
        if len(self._counts) < self._workers:
            return
        (line, _), *others = self._counts.values()
        are_equal = all(_same(line, other) for other, _ in others)
        if not are_equal or min(count for _, count in self._counts.values()) < _TIMES:
            return
        self._monitor.hear_news()
        if self._is_task_lost():
            self._counts.clear()
            return
        raise RunError(
            f"{doing}: every worker fails in the same way, again and again, while all tasks "
            f"answer: {line}; look whether the model uses what only the chief's process has, such "
            "as a variable or a table made outside of build_model(), and in the chief's log"
        )

    def _is_task_lost(self) -> bool:
        """Whether a task is lost, or was since this was asked last."""
        before, self._losses = self._losses, self._monitor.failures.by_job.total()
        return bool(self._losses != before or self._monitor.outages())


def _same(line: str, other: str) -> bool:
    """Whether two first lines tell of one failure, on whichever worker."""
    return _WORKER.sub("", line) == _WORKER.sub("", other)
