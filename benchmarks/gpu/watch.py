"""What is looked at of a system while it trains: its GPUs, its step, what a kill leaves behind."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from benchmarks import systems
from benchmarks.datasets import ROOT
from benchmarks.failure import Failed
from benchmarks.gpu import nvidia_smi
from benchmarks.gpu.cases import Setup
from benchmarks.gpu.sampler import Sampler, summary

KILL_LIMIT_SECONDS = 120.0
_TRACE_SECONDS, _TRACE_LIMIT_SECONDS = 1.0, 600.0
_POLL_SECONDS = 0.2
_KILLED = "worker-1"
_NCCL_RANK = re.compile(r"NCCL INFO .*\brank (\d+) nranks (\d+)\b.*Init COMPLETE")


class GpuWatch:
    """Watches the GPUs from before a system starts to the end of its window; see `Watch`."""

    def __init__(self, setup: Setup, job_dir: pathlib.Path, sampler: Sampler):
        """Watches a system that is about to be started.

        Args:
            setup: How it trains.
            job_dir: Of tfps's job.
            sampler: Takes samples from now on.
        """
        self._setup = setup
        self._job_dir = job_dir
        self._sampler = sampler
        self._began = 0.0

    def begin(self, tasks: Mapping[str, int]) -> None:
        """Notes that the window begins; see `Watch`."""
        self._began = time.monotonic()

    def end(self, process: int, tasks: Mapping[str, int]) -> dict[str, Any]:
        """What was seen: `gpu`, of a cluster `profile` too, `killed` where one was, `nccl_ranks`.

        Raises:
            Failed: If nvidia-smi fails.
        """
        samples = self._sampler.end()  # what follows is not to be disturbed by asking
        found: dict[str, Any] = {"gpu": summary(samples, self._began, tasks)}
        if self._setup.is_cluster and not self._setup.kills:
            found["profile"] = profiled(self._job_dir)
        if self._setup.kills:
            found["killed"] = killed(process, tasks)
        if self._setup.has_nccl:
            found["nccl_ranks"] = nccl_ranks(self._job_dir.parent)
        return found


@contextlib.contextmanager
def watching(setup: Setup, job_dir: pathlib.Path) -> Iterator[GpuWatch]:
    """A watch that takes samples until the block is left."""
    with Sampler() as sampler:
        yield GpuWatch(setup, job_dir, sampler)


def nccl_ranks(directory: pathlib.Path) -> list[str]:
    """The ranks, as `RANK of RANKS`, that NCCL says to have set up, by its logs in a directory."""
    texts = [path.read_text(errors="replace") for path in directory.glob("nccl-*")]
    found = {" of ".join(each) for text in texts for each in _NCCL_RANK.findall(text)}
    return sorted(found)


def profiled(job_dir: pathlib.Path) -> dict[str, Any]:
    """What `trainer.profile` says of a job that runs: whether it `is_told`, and the `lines`."""
    command = [
        *(sys.executable, "-m", "trainer.profile"),
        *(f"--job_dir={job_dir}", f"--seconds={_TRACE_SECONDS:g}"),
    ]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=_TRACE_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        said = f"trainer.profile has not ended within {_TRACE_LIMIT_SECONDS:g} s"
        return {"is_told": False, "lines": [said]}
    is_told = done.returncode == 0
    lines = done.stdout.splitlines() if is_told else done.stderr.splitlines()[-5:]
    return {
        "is_told": is_told,
        "lines": [line for line in lines if not line.startswith("traces: ")],
    }


def killed(
    process: int, tasks: Mapping[str, int], limit_seconds: float = KILL_LIMIT_SECONDS
) -> dict[str, Any]:
    """Kills a worker, and waits until its GPU's memory is free and its successor has some.

    Args:
        process: The launcher's process id.
        tasks: Process ids by task.
        limit_seconds: For each of both.

    Returns:
        `was_listed`, whether nvidia-smi had the worker among its processes; `freed_seconds` and
        `back_seconds` from the kill on, until it had it no more and had the one that was started in
        its place; None where that was not seen within the limit. In MiB, of all GPUs together:
        `memory_before` the kill and `memory_after` it, when it was freed.
    """
    victim = tasks[_KILLED]
    before = _used()
    was_listed = victim in _pids()
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    freed = after = back = None
    while time.monotonic() - began < limit_seconds and freed is None:
        if victim not in _pids():
            freed, after = time.monotonic() - began, _used()
        time.sleep(_POLL_SECONDS)
    while freed is not None and time.monotonic() - began < 2 * limit_seconds and back is None:
        successor = _successor(process, victim)
        if successor in _pids():
            back = time.monotonic() - began
        time.sleep(_POLL_SECONDS)
    return {
        "was_listed": was_listed,
        "freed_seconds": None if freed is None else round(freed, 2),
        "back_seconds": None if back is None else round(back, 2),
        "memory_before": before,
        "memory_after": after,
    }


def _successor(process: int, victim: int) -> int | None:
    """The process id of the worker that was started anew, once it is."""
    try:
        found = systems.tasks(process, "launcher").get(_KILLED)
    except psutil.NoSuchProcess as error:
        if error.pid == process:
            raise Failed("the launcher has ended with the worker that was killed") from None
        return None  # another task ended while they were listed
    return None if found == victim else found


def _pids() -> set[int]:
    return {each.pid for each in nvidia_smi.read_processes()}


def _used() -> int:
    return sum(gpu.memory_used for gpu in nvidia_smi.read_gpus())
