"""Where closures run: in this process, or on the workers of a cluster."""

import collections
import concurrent.futures
import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.cluster import failures
from tfps.cluster.failures import lost_ps_behind
from tfps.cluster.fetching import fetched
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.preflight import Incarnations
from tfps.errors import RunError
from tfps.job_dir.task_name import TaskName

# Between two failures of a worker TensorFlow has reached every task of the cluster again.
_TIMES = 3
_MISCOUNT = "There is no inflight closures"
_WORKER = re.compile(r"/job:worker/replica:0/task:(\d+)")
_REFETCH_SECONDS = 0.2
_WORKER_RETURN_SECONDS = 3600.0  # as long as ClusterCoordinator itself waits for a worker
_log = logging.getLogger(__name__)


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


def hide_miscounts() -> None:
    """Has no traceback printed where a thread of TensorFlow's coordinator ends by a miscount.

    When a ps is lost and a worker with it, or on its account, it puts a closure back and counts it
    as failed, too. The thread that finds none left to count ends; the chief connects again.
    """
    if isinstance(threading.excepthook, _WithoutMiscounts):
        return
    threading.excepthook = _WithoutMiscounts(threading.excepthook)


class _WithoutMiscounts:
    def __init__(self, others: Callable[[Any], Any]):
        self._others = others

    def __call__(self, ended: Any) -> None:
        if isinstance(ended.exc_value, AssertionError) and _MISCOUNT in str(ended.exc_value):
            _log.info("a thread of TensorFlow's coordinator has ended: %s", ended.exc_value)
        else:
            self._others(ended)


class RepeatedFailure:
    """Counts how often each worker has failed in the same way, with nothing trained in between."""

    def __init__(self, workers: Sequence[int], monitor: TaskMonitor):
        self._workers = len(workers)
        self._monitor = monitor
        self._losses = 0
        self._counts: dict[int, tuple[str, int]] = {}  # by worker, with the failure's first line
        self._lost_ps: Exception | None = None

    def refuse_lost_ps(self) -> None:
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
        """Begins to count again, since a closure has made progress."""
        self._counts.clear()
        self._lost_ps = None

    def refuse(self, doing: str) -> None:
        """Ends the run if every worker failed repeatedly alike; `doing` as "training epoch 1"."""
        if len(self._counts) < self._workers:
            return
        (line, _), *others = self._counts.values()
        are_equal = all(_same(line, other) for other, _ in others)
        if not are_equal or min(count for _, count in self._counts.values()) < _TIMES:
            return
        self._monitor.wait_for_pending_probes()
        if self._is_task_lost():
            self._counts.clear()
            return
        raise RunError(
            f"{doing}: every worker fails in the same way, again and again, while all tasks "
            f"answer: {line}; look whether the model uses what only the chief's process has, such "
            "as a variable or a table made outside of build_model(), and in the chief's log"
        )

    def _is_task_lost(self) -> bool:
        """Also whether one was lost since this was asked last."""
        before, self._losses = self._losses, self._monitor.failures.by_job.total()
        return bool(self._losses != before or self._monitor.outages())


def _same(line: str, other: str) -> bool:
    """Whether two first lines show one failure, on any worker."""
    return _WORKER.sub("", line) == _WORKER.sub("", other)


class Executor(Protocol):
    """Runs closures, one per worker index at a time; `is_remote` where in other processes."""

    devices: Sequence[str]
    workers: Sequence[int]
    gpus: int
    is_remote: bool

    def worker_index(self) -> tf.Tensor:
        """In a closure, the index of the worker that runs it, scalar int64."""

    def trace(self, closure: tf.types.experimental.PolymorphicFunction) -> None:
        """Traces a closure as it is traced when it is scheduled; it must have a signature."""

    def schedule(self, closure: Callable, args: Sequence[Any]) -> Future:
        """Queues a closure; its result, as NumPy values, or its error arrives in the future."""

    def run_on(self, worker: int, function: Callable, args: Sequence[Any]) -> Future:
        """Calls a traced function on a worker at once, next to its running closure."""

    def root_error(self, error: BaseException) -> BaseException:
        """The error behind a future's error; one cancelled for another's failure knows not."""

    def retried(self) -> Sequence[ClosureFailure]:
        """Failures since the last call of closures that run again, which no future has."""

    def replaced_ps(self) -> Sequence[TaskName]:
        """The ps in whose place another server answers than the one that has the parameters."""


class LocalExecutor:
    """One process: closures run one after the other, parameters are in its memory."""

    devices: Sequence[str] = ("/device:CPU:0",)
    workers: Sequence[int] = (0,)
    is_remote = False

    def __init__(self) -> None:
        self.gpus = len(tf.config.list_physical_devices("GPU"))
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "closure")
        self._run_on = concurrent.futures.ThreadPoolExecutor(1, "run-on")

    def worker_index(self) -> tf.Tensor:
        return tf.constant(0, tf.int64)

    def trace(self, closure: tf.types.experimental.PolymorphicFunction) -> None:
        closure.get_concrete_function()

    def schedule(self, closure: Callable, args: Sequence[Any]) -> Future:
        return self._pool.submit(lambda: _to_numpy(closure(*args)))

    def run_on(self, worker: int, function: Callable, args: Sequence[Any]) -> Future:
        return self._run_on.submit(lambda: _to_numpy(function(*args)))

    def root_error(self, error: BaseException) -> BaseException:
        return error

    def retried(self) -> Sequence[ClosureFailure]:
        return ()

    def replaced_ps(self) -> Sequence[TaskName]:
        return ()


class ClusterExecutor:
    """Workers of a `ClusterCoordinator`; a thread waits for each `RemoteValue`, which blocks."""

    is_remote = True

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        workers: Sequence[int],
        servers: Incarnations,
        ps: int,
    ):
        self.devices: Sequence[str] = [TaskName("ps", index).device for index in range(ps)]
        self.workers = workers
        self.gpus = min(_gpus_of(place) for place in range(len(workers)))
        hide_miscounts()
        self._coordinator = coordinator
        self._servers = servers
        self._failures = FailureLog()
        self._pool = concurrent.futures.ThreadPoolExecutor(4 * len(workers) + 4, "fetch")
        self._run_on = concurrent.futures.ThreadPoolExecutor(len(workers), "run-on")

    def worker_index(self) -> tf.Tensor:
        place = tf.distribute.coordinator.experimental_get_current_worker_index()
        return tf.gather(tf.constant(self.workers, tf.int64), place)

    def trace(self, closure: tf.types.experimental.PolymorphicFunction) -> None:
        with self._coordinator.strategy.scope():  # else it is another function to TensorFlow
            closure.get_concrete_function()

    def schedule(self, closure: Callable, args: Sequence[Any]) -> Future:
        try:
            remote = self._coordinator.schedule(closure, args=tuple(args))
        except tf.errors.OpError as error:
            # With what an earlier closure has just failed, whose future may be looked at later.
            failed: Future = Future()
            failed.set_exception(error)
            return failed
        return self._pool.submit(_fetch, remote)

    def run_on(self, worker: int, function: Callable, args: Sequence[Any]) -> Future:
        place = self.workers.index(worker)

        def call() -> Any:
            with tf.device(TaskName("worker", place).device):
                return _to_numpy(function(*args))

        return self._run_on.submit(call)

    def root_error(self, error: BaseException) -> BaseException:
        if not isinstance(error, tf.errors.CancelledError):
            return error
        try:
            self._coordinator.join()
        except Exception as root:  # whatever a closure raised
            return root
        return error

    def retried(self) -> Sequence[ClosureFailure]:
        return self._failures.take()

    def replaced_ps(self) -> Sequence[TaskName]:
        return self._servers.replaced()


def _gpus_of(place: int) -> int:
    devices = tf.config.list_logical_devices("GPU")
    return sum(f"/job:worker/replica:0/task:{place}/" in device.name for device in devices)


def _fetch(remote: tf.distribute.coordinator.RemoteValue) -> Any:
    """Waits for a result; one that was lost with its worker is made again by the coordinator."""
    deadline = time.monotonic() + _WORKER_RETURN_SECONDS
    while True:
        try:
            return remote.fetch()
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            if lost_ps_behind(error) or time.monotonic() > deadline:
                raise
            time.sleep(_REFETCH_SECONDS)


def _to_numpy(result: Any) -> Any:
    return tf.nest.map_structure(fetched, result)
