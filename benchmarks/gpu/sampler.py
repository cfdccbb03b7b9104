"""Looks again and again at who uses the GPUs, and how much."""

import dataclasses
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.failure import Failed
from benchmarks.gpu import nvidia_smi
from benchmarks.gpu.nvidia_smi import Gpu, GpuProcess

SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Sample:
    """What nvidia-smi said at one moment.

    Attributes:
        time: Monotonic clock, seconds.
        gpus: All GPUs.
        processes: All processes that compute on one.
    """

    time: float
    gpus: Sequence[Gpu]
    processes: Sequence[GpuProcess]


class Sampler:
    """Takes samples in a thread of its own; a context manager."""

    def __init__(self, seconds: float = SECONDS):
        """Takes none yet.

        Args:
            seconds: Between the end of one and the begin of the next.
        """
        self._samples: list[Sample] = []
        self._seconds = seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="gpu-sampler")
        self._failure: Failed | None = None

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._end()

    def end(self) -> list[Sample]:
        """Takes no more; returns those taken.

        Raises:
            Failed: If nvidia-smi failed meanwhile.
        """
        self._end()
        if self._failure:
            raise self._failure
        return self._samples

    def _end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                self._samples.append(take())
                self._is_over.wait(self._seconds)
        except Failed as failure:
            self._failure = failure


def take() -> Sample:
    """One sample, now.

    Raises:
        Failed: If nvidia-smi fails.
    """
    gpus, processes = nvidia_smi.read_gpus(), nvidia_smi.read_processes()
    return Sample(time.monotonic(), gpus, processes)


def summary(samples: Sequence[Sample], began: float, tasks: Mapping[str, int]) -> dict[str, Any]:
    """What samples say of some tasks, JSON-ready.

    Args:
        samples: Some, in order; those before a window show how memory has grown.
        began: When the window began; utilisation is of what comes after.
        tasks: Process ids by task.

    Returns:
        `samples`, how many there were in the window; by index of the GPU `utilization` (mean over
        the window, percent; None where nvidia-smi tells none), `memory_peak` and `memory_total`
        (MiB, of all processes); `listed`, by task and index of the GPU the most MiB that it held,
        None where nvidia-smi does not tell; `others`, how many processes that are none of the tasks
        were listed.

    Raises:
        Failed: If there is no sample in the window.
    """
    within = [sample for sample in samples if sample.time >= began]
    if not within:
        raise Failed(
            "nvidia-smi has not answered once while the window lasted: give more --seconds"
        )
    indices = {gpu.uuid: str(gpu.index) for gpu in within[-1].gpus}
    names = {pid: task for task, pid in tasks.items()}
    listed: dict[str, dict[str, int | None]] = {}
    others = set()
    for sample in samples:
        for process in sample.processes:
            if process.pid not in names:
                others.add(process.pid)
                continue
            mine = listed.setdefault(names[process.pid], {})
            index = indices.get(process.uuid, process.uuid)
            mine[index] = most(mine.get(index), process.memory)
    return {
        "samples": len(within),
        "utilization": {
            str(gpu.index): _mean(
                [each.utilization for sample in within for each in sample.gpus if _same(each, gpu)]
            )
            for gpu in within[-1].gpus
        },
        "memory_peak": {
            str(gpu.index): max(
                each.memory_used for sample in samples for each in sample.gpus if _same(each, gpu)
            )
            for gpu in within[-1].gpus
        },
        "memory_total": {str(gpu.index): gpu.memory_total for gpu in within[-1].gpus},
        "listed": listed,
        "others": len(others),
    }


def most(one: int | None, other: int | None) -> int | None:
    """The greater of two numbers that may be unknown."""
    known = [number for number in (one, other) if number is not None]
    return max(known, default=None)


def _same(one: Gpu, other: Gpu) -> bool:
    return one.uuid == other.uuid


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.mean(known), 1) if known else None
