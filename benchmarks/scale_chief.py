"""What the chief and the barrier loop cost where tasks are many. See `benchmarks.scale`."""

import concurrent.futures
import dataclasses
import heapq
import pathlib
import tempfile
import threading
import time
import tracemalloc
import types
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.scale_data import made_up_dataset, peak_megabytes
from configs.smoke import get_config
from tests import counting_task
from tests.training_fixtures import Trainer
from tfps.barrier.messages import Kind, message
from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.lanes import lanes_of
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.data.training_data import TrainingData
from tfps.experiment.metrics import auc
from tfps.experiment.mode import Bounded
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.progress import LeaseProgress
from tfps.leases.queue import LeaseQueue
from tfps.leases.queue_state import QueueState

_LEASE_SECONDS = 5.0
_MEASURE_SECONDS = 12.0
_EVALUATED = 4_000_000


def barrier(tasks: Sequence[int]) -> list[dict]:
    """CPU of the first ps for one step of all members at a barrier, without the wire.

    The real loop of `--mode.name=bounded`, all of whose members contribute at once; the least of
    three steps.
    """
    task, found = counting_task.CountingTask(records=40), {}
    with tempfile.TemporaryDirectory() as directory:
        data = counting_task.write(pathlib.Path(directory), task, [40])
        for members in tasks:
            mode = Bounded(max_staleness=4)
            trainer = Trainer(data, task, batch_size=8, members=members, mode=mode, parts=1)
            found[members] = 1e3 * _step_of_all(trainer.barrier, members)
    what = "barrier: CPU of its loop for a step of all"
    return [{"what": what, "unit": "ms", "by_tasks": found}]


def leases(tasks: Sequence[int]) -> list[dict]:
    """The chief's CPU time for each lease, with as many workers that finish leases of 5 s.

    The coordinator, its queue and the progress of leases are the real ones, on workers that only
    wait, and the data has 10 million records for each of them. Remote calls, and what
    `ClusterCoordinator` does to send a closure, are not counted.
    """
    cpu, memory = {}, {}
    for workers in sorted(tasks):  # the process never holds less than it did
        cpu[workers] = 1e3 * _seconds_per_lease(workers)
        memory[workers] = peak_megabytes()
    return [
        {"what": "chief: CPU per lease", "unit": "ms", "by_tasks": cpu},
        {"what": "chief: memory", "unit": "MB", "by_tasks": memory},
    ]


def evaluation(tasks: Sequence[int]) -> list[dict]:
    """What the exact AUC takes on the chief beside its input, whatever the number of tasks."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, _EVALUATED).astype(np.float32)
    scores = generator.random(_EVALUATED, np.float32)
    began = time.process_time()
    auc(labels, scores)
    seconds = time.process_time() - began
    tracemalloc.start()
    auc(labels, scores)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = {"B": peak / _EVALUATED, "ns": seconds / _EVALUATED * 1e9}
    return [
        {
            "what": f"evaluation: {'memory' if unit == 'B' else 'CPU'} per record and AUC",
            "unit": unit,
            "by_tasks": dict.fromkeys(tasks, value),
        }
        for unit, value in each.items()
    ]


def _step_of_all(barrier, members: int) -> float:
    """CPU-seconds."""
    function = barrier.run.get_concrete_function()
    loop = barrier._loop
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(function)
        begin, contribute = (
            tf.stack([message(kind, member, 1) for member in range(members)])
            for kind in (Kind.BEGIN, Kind.CONTRIBUTE)
        )

        def all_go_on(messages: tf.Tensor) -> float:
            began = time.process_time()
            loop.messages.put_all(messages)
            for member in range(members):
                loop.tokens.queues[member * 4 + 1].dequeue()
            return time.process_time() - began

        all_go_on(begin)
        least = min(all_go_on(contribute) for _ in range(3))
        barrier.stop()
        running.result(60)
    return least


def _seconds_per_lease(workers: int) -> float:
    """CPU-seconds, from when every worker has finished one lease."""
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment,
        train=dataclasses.replace(experiment.train, batch_size=512),
        data=dataclasses.replace(experiment.data, shuffle_buffer=8192),
    )
    executor = _IdleWorkers(workers)
    progress = LeaseProgress(lanes_of(executor), "/device:CPU:0")
    closures = types.SimpleNamespace(train=None, open=None, schema=())
    coordinator = WorkerCoordinator(executor, closures, progress, TaskMonitor({}), 600.0, lambda: 1)
    coordinator.meter.lease_length.measured(160, _LEASE_SECONDS)
    data = TrainingData.of(made_up_dataset(workers))
    order = EpochOrder.of(experiment)
    queue = LeaseQueue(data, order, 1, QueueState(), BadRecords(data, (), 0))
    begun: dict[str, float] = {}

    def report(progress: object) -> None:
        if executor.finished >= workers and not begun:
            begun.update(leases=executor.finished, cpu=time.process_time(), at=time.monotonic())
        if begun and time.monotonic() > begun["at"] + _MEASURE_SECONDS:
            raise _MeasuredError

    try:
        coordinator.train(queue, lambda: False, report)
    except _MeasuredError:
        return (time.process_time() - begun["cpu"]) / (executor.finished - begun["leases"])
    finally:
        executor.stop()
    raise AssertionError("the records do not last")


class _MeasuredError(Exception):
    """The time is over."""


class _IdleWorkers:
    """An executor whose closures take 5 to 10 s and compute nothing."""

    gpus = 0
    devices: tuple[str, ...] = ("/device:CPU:0",)

    def __init__(self, workers: int):
        self.workers = list(range(workers))
        self.finished = 0
        self._running: list[tuple] = []
        self._count = 0
        self._changed = threading.Condition()
        self._stopped = False
        threading.Thread(target=self._run, daemon=True).start()

    def worker_index(self) -> tf.Tensor:
        return tf.constant(0, tf.int64)

    def root_error(self, error: Exception) -> Exception:
        return error

    def retried(self) -> tuple:
        return ()

    def schedule(self, closure: object, args: tuple) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        numbers = args[1].numpy()
        count, slot = int(numbers[1]), int(numbers[3])
        steps, worker = -(-count // 512), slot % len(self.workers)
        trained = [1, steps, 0, 0.5 * count, -1, worker, time.time(), _LEASE_SECONDS]
        result = np.array([*trained, 0, 0, 0])  # no exchange is timed
        with self._changed:
            self._count += 1
            due = time.monotonic() + _LEASE_SECONDS * (1 + self._count % 97 / 97)
            heapq.heappush(self._running, (due, self._count, future, result))
            self._changed.notify()
        return future

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._running or self._stopped)
                if self._stopped:
                    return
                due = self._running[0][0] - time.monotonic()
                if due > 0:
                    self._changed.wait(due)
                    continue
                _, _, future, result = heapq.heappop(self._running)
            self.finished += 1
            future.set_result(result)
