"""Where closures run: in this process, or on the workers of a cluster."""

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import tensorflow as tf

from tfps.cluster.failures import lost_ps_behind
from tfps.cluster.incarnations import Incarnations
from tfps.coordinator.repeated_failure import ClosureFailure, FailureLog
from tfps.job_dir.task_name import TaskName

_REFETCH_SECONDS = 0.2
_WORKER_RETURN_SECONDS = 3600.0  # as long as ClusterCoordinator itself waits for a worker


class Executor(Protocol):
    """Runs closures somewhere and hands back their results.

    Attributes:
        workers: Indices of the workers; so many closures run at the same time.
        is_remote: Whether closures run in other processes than this one.
    """

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
        """Calls a traced function on a worker at once, beside the closure that runs there."""

    def root_error(self, error: BaseException) -> BaseException:
        """The error behind a future's error; one cancelled for another's failure knows not."""

    def retried(self) -> Sequence[ClosureFailure]:
        """Failures of closures since the last call that no future tells: they are run again."""

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
        self._beside = concurrent.futures.ThreadPoolExecutor(1, "beside")

    def worker_index(self) -> tf.Tensor:
        return tf.constant(0, tf.int64)

    def trace(self, closure: tf.types.experimental.PolymorphicFunction) -> None:
        closure.get_concrete_function()

    def schedule(self, closure: Callable, args: Sequence[Any]) -> Future:
        return self._pool.submit(lambda: _to_numpy(closure(*args)))

    def run_on(self, worker: int, function: Callable, args: Sequence[Any]) -> Future:
        return self._beside.submit(lambda: _to_numpy(function(*args)))

    def root_error(self, error: BaseException) -> BaseException:
        return error

    def retried(self) -> Sequence[ClosureFailure]:
        return ()

    def replaced_ps(self) -> Sequence[TaskName]:
        return ()


class ClusterExecutor:
    """Workers of a cluster, through a `ClusterCoordinator`.

    One thread waits for each scheduled closure, since a `RemoteValue` can only be waited for.
    """

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
        self._coordinator = coordinator
        self._servers = servers
        self._failures = FailureLog()
        self._pool = concurrent.futures.ThreadPoolExecutor(4 * len(workers) + 4, "fetch")
        self._beside = concurrent.futures.ThreadPoolExecutor(len(workers), "beside")

    def worker_index(self) -> tf.Tensor:
        place = tf.distribute.coordinator.experimental_get_current_worker_index()
        return tf.gather(tf.constant(self.workers, tf.int64), place)

    def trace(self, closure: tf.types.experimental.PolymorphicFunction) -> None:
        with self._coordinator.strategy.scope():  # else it is another function to TensorFlow
            closure.get_concrete_function()

    def schedule(self, closure: Callable, args: Sequence[Any]) -> Future:
        return self._pool.submit(_fetch, self._coordinator.schedule(closure, args=tuple(args)))

    def run_on(self, worker: int, function: Callable, args: Sequence[Any]) -> Future:
        place = self.workers.index(worker)

        def call() -> Any:
            with tf.device(TaskName("worker", place).device):
                return _to_numpy(function(*args))

        return self._beside.submit(call)

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
    return tf.nest.map_structure(lambda value: value.numpy(), result)
