"""Connects the chief to its cluster, with the workers that there are."""

import concurrent.futures
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

# Private: ParameterServerStrategy connects with what it takes by default, which nothing public
# changes.
from tensorflow.python.eager import context

from tfps.cluster.failures import first_line
from tfps.cluster.preflight import Incarnations, TaskCheck, Wanted, check_tasks
from tfps.cluster.spec import Cluster, port_error
from tfps.coordinator.executor import ClusterExecutor, Executor, LocalExecutor
from tfps.errors import LostPsError, RunError, UserError, WorkersChangedError
from tfps.job_dir import JobDir
from tfps.job_dir.task_name import TaskName

_LEAST_SECONDS = 20.0  # to connect to tasks that have just answered
_AGAIN_SECONDS = 15.0  # to wait for all workers when the run continues, and enough are there
_EXPIRE_SECONDS = 60  # as long as the tasks wait for a lost chief by default
# In one process: while it lives TensorFlow never frees what workers and ps have made of a
# connection's functions, 100 MB of the Criteo model on a worker.
_MOST_CONNECTIONS = 3
_log = logging.getLogger(__name__)


def set_up(keep_alive_seconds: int) -> None:
    """Has tasks that this process connects to keep what it makes there for so long, and rest.

    TensorFlow has ten minutes: a ps whose chief was killed twice would hold all parameters three
    times.

    Closures run in threads that a task makes for its chief, as the chief's settings say, whatever
    those of its own server are. By default a thread that has nothing to do looks some hundred
    times whether there is something before it sleeps: on a ps and its workers, which wait for each
    other in every step, that was 6 % of all CPU, and 14 % where others needed the cores.

    A task goes once through a graph that it is given, where TensorFlow does so twice and also looks
    for memory to save: of a training closure with ten steps that took 5.8 of 10.5 seconds on a
    busy machine, and left 52 of 3,860 nodes less. Nor does it translate the graph to another form
    and back, which was a quarter of the rest and left every node as it was.
    """
    current = context.context()
    current.ensure_initialized()
    current._config = _of_graphs()
    for name in ("set_server_def", "update_server_def"):
        connect = functools.partial(getattr(type(current), name), current)
        setattr(current, name, functools.partial(_connect_server, connect, keep_alive_seconds))


def leave_layouts_alone() -> None:
    """Has no task look for layouts of images that suit a GPU, which they do even without one."""
    tf.config.optimizer.set_experimental_options({"layout_optimizer": False})


def _of_graphs() -> tf.compat.v1.ConfigProto:
    """What travels with every call of a graph."""
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.meta_optimizer_iterations = options.ONE
    options.memory_optimization = options.NO_MEM_OPT
    options.disable_tfg_optimizer = True
    return config


def _connect_server(connect: Callable[..., None], keep_alive_seconds: int, server_def: Any) -> None:
    server_def.default_session_config.experimental.disable_thread_spinning = True
    connect(server_def, keep_alive_secs=keep_alive_seconds)


class Connector:
    """Makes this process the coordinator of its cluster, again after a ps was lost.

    A run starts with every ps and enough workers. TensorFlow connects a process once, to one set of
    workers, and does not give up its server: for others the chief has to restart.
    """

    def __init__(
        self,
        cluster: Cluster,
        job_dir: JobDir,
        limit_seconds: float,
        min_workers: int,
        again: bool,
        memory: Mapping[TaskName, int],
    ):
        """`min_workers` 0 asks for all, or for one on `again`; `memory` is bytes by task."""
        self.left_out: tuple[TaskName, ...] = ()
        self._cluster = cluster
        self._wanted = Wanted(cluster.tasks(), job_dir, memory)
        self._limit_seconds = limit_seconds
        self._min_workers = min_workers
        self._again = again
        self._indices: list[int] = []  # of the workers that TensorFlow knows
        self._looking: concurrent.futures.Future[list[TaskCheck]] | None = None
        self._found: list[TaskCheck] = []  # by the last look
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "newcomers")
        self._reported: set[TaskName] = set()  # newcomers that cannot join
        self._connections = 0

    @property
    def is_used_up(self) -> bool:
        """Whether this process has connected so often that another one should continue."""
        return self._connections >= _MOST_CONNECTIONS

    @property
    def workers(self) -> list[TaskName]:
        """The workers that the last connection is with."""
        return [TaskName("worker", index) for index in self._indices]

    def connect(self) -> Executor:
        """Waits for the tasks, then connects to them."""
        if self._cluster.is_local:
            return LocalExecutor()
        workers, ps = len(self._cluster.workers), len(self._cluster.ps)
        _log.info("waiting for %d workers and %d ps", workers, ps)
        began = time.monotonic()
        checks = self._check_again() if self._again else self._check(self._limit_seconds)
        indices = self._workers(checks)
        if self._indices not in ([], indices):
            raise WorkersChangedError("there are other workers than before")
        self._indices = indices
        self._connections += 1
        seconds = max(_LEAST_SECONDS, self._limit_seconds - (time.monotonic() - began))
        coordinator = self._coordinator(seconds)
        self._again, self._looking, self._found = True, None, []
        _log.info("connected to %d workers and %d ps", len(indices), ps)
        executor = ClusterExecutor(coordinator, indices, Incarnations(checks, "ps"), ps)
        if not executor.gpus:
            leave_layouts_alone()
        return executor

    def arrivals(self) -> list[TaskName]:
        """The workers left out that could join by now; returns at once, as a thread asks them."""
        if not self.left_out:
            return []
        if self._looking is None or self._looking.done():
            self._found = self._looking.result() if self._looking else []
            self._looking = self._thread.submit(self._ask, self.left_out)
        for each in self._found:
            if each.answers and each.mismatch and each.task not in self._reported:
                self._reported.add(each.task)
                _log.warning("cannot join: %s", each)
        return [each.task for each in self._found if each.is_fit]

    def can_do_without(self, workers: Sequence[TaskName]) -> bool:
        left = len(self._cluster.workers) - len({*self.left_out, *workers})
        return left >= max(1, self._min_workers)

    def _ask(self, workers: Sequence[TaskName]) -> list[TaskCheck]:
        peers = self._cluster.peers()
        addresses = {worker: peers[worker] for worker in workers}
        return check_tasks(addresses, self._wanted, 0.0)

    def _check(self, limit_seconds: float) -> list[TaskCheck]:
        return check_tasks(self._cluster.peers(), self._wanted, limit_seconds)

    def _check_again(self) -> list[TaskCheck]:
        """What is seen of tasks that were there before: soon, if there are enough workers."""
        deadline = time.monotonic() + self._limit_seconds
        has_said = False
        while True:
            found = self._check(min(self._limit_seconds, _AGAIN_SECONDS))
            away = [each for each in found if not each.answers]
            if lost := [str(each) for each in away if each.task.job == "ps"]:
                raise LostPsError("; ".join(lost))
            if len(self._cluster.workers) - len(away) >= self._least:
                return found
            if time.monotonic() > deadline:
                return found
            if not has_said:
                _log.warning(
                    "waiting up to %.0f s for at least %d of the %d workers: %s",
                    self._limit_seconds,
                    self._least,
                    len(self._cluster.workers),
                    "; ".join(map(str, away)),
                )
                has_said = True

    @property
    def _least(self) -> int:
        """How many workers a run needs."""
        return self._min_workers or (1 if self._again else len(self._cluster.workers))

    def _workers(self, found: Sequence[TaskCheck]) -> list[int]:
        """Indices of the workers to connect to."""
        unfit = [each for each in found if not each.is_fit]
        away = [each for each in unfit if each.task.job == "worker" and not each.answers]
        workers, least = len(self._cluster.workers), self._least
        if len(away) < len(unfit) or workers - len(away) < least:
            needed = f"; at least {least} of the {workers} workers are needed" if away else ""
            raise UserError(
                f"not all tasks can be used: {'; '.join(map(str, unfit))}; tasks that do not "
                f"answer are waited for {self._limit_seconds:.0f} s (--connect_seconds){needed}"
            )
        for each in away:
            _log.warning("left out until it answers: %s", each)
        self.left_out = tuple(each.task for each in away)
        return [k for k in range(workers) if TaskName("worker", k) not in self.left_out]

    def _coordinator(self, seconds: float) -> tf.distribute.coordinator.ClusterCoordinator:
        workers = tuple(self._cluster.workers[k] for k in self._indices)
        part = dataclasses.replace(self._cluster, workers=workers)
        # In a thread of its own: TensorFlow tries again for ever, or waits without a limit.
        thread = concurrent.futures.ThreadPoolExecutor(1, "connect")
        connecting = thread.submit(_connect, part)
        try:
            coordinator = connecting.result(seconds)
        except TimeoutError:
            raise RunError(self._not_connected(f"not connected after {seconds:.0f} s")) from None
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            raise LostPsError(self._not_connected(first_line(error))) from None
        thread.shutdown()
        return coordinator

    def _not_connected(self, seen: str) -> str:
        """The message of a connection that failed although all tasks had answered."""
        found = self._check(0.0)
        unfit = [str(each) for each in found if not each.is_fit and each.task not in self.left_out]
        seen_by_task = "; ".join(unfit) or "every task answers; look in their logs"
        return f"the chief cannot connect to its tasks ({seen}): {seen_by_task}"


def _connect(cluster: Cluster) -> tf.distribute.coordinator.ClusterCoordinator:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.spec()), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    set_up(_EXPIRE_SECONDS)
    try:
        strategy = tf.distribute.ParameterServerStrategy(resolver)
    except tf.errors.UnknownError as error:
        raise port_error(cluster, error.message) from None
    return tf.distribute.coordinator.ClusterCoordinator(strategy)
