"""What a set of processes used between two moments: CPU time, loopback bytes, memory."""

import dataclasses
import os
import time
from collections.abc import Mapping
from typing import Any

import psutil


@dataclasses.dataclass(frozen=True)
class Reading:
    """Counters at one moment.

    Attributes:
        time: Monotonic clock, seconds.
        cpu: CPU time of each process since its start, seconds.
        loopback_bytes: Bytes ever received on the loopback interface.
        busy: CPU time of the whole machine, seconds over all cores.
        stolen: CPU time that the hypervisor gave to others, seconds over all cores.
        peak_memory: Most resident memory that each process ever had, bytes.
    """

    time: float
    cpu: dict[str, float]
    loopback_bytes: int
    busy: float
    stolen: float
    peak_memory: dict[str, int]


class Meter:
    """Reads the counters of some processes and of the machine."""

    def __init__(self, processes: Mapping[str, int]):
        """Watches processes.

        Args:
            processes: Process ids by the name of their task.
        """
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}

    def read(self) -> Reading:
        """Reads all counters.

        Raises:
            psutil.NoSuchProcess: If one of the processes has ended.
            FileNotFoundError: If one ends in between.
        """
        cpu = {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}
        memory = {name: _peak_memory(process.pid) for name, process in self._processes.items()}
        busy, stolen = _machine_seconds()
        return Reading(time.monotonic(), cpu, _loopback_bytes(), busy, stolen, memory)


def used(start: Reading, end: Reading, examples: int) -> dict[str, Any]:
    """What was used from one reading to another, JSON-ready.

    Args:
        start: The first reading.
        end: The second one.
        examples: Examples trained in between.

    Returns:
        Figures by name. `chief_share` is the chief's part of the CPU time of all processes, 0
        without a chief; `peak_megabytes` has the largest process of each role. `others_cores` and
        `stolen_cores` say how much of the machine somebody else had, in cores: a run in which they
        are not near 0 was disturbed.
    """
    seconds = end.time - start.time
    cpu = {name: end.cpu[name] - start.cpu[name] for name in end.cpu}
    total = sum(cpu.values())
    peaks: dict[str, int] = {}
    for name, peak in end.peak_memory.items():
        role = name.partition("-")[0]
        peaks[role] = max(peaks.get(role, 0), round(peak / 1e6))
    return {
        "seconds": round(seconds, 2),
        "examples": examples,
        "examples_per_second": round(examples / seconds, 1),
        "cpu_seconds_per_million_examples": round(total / examples * 1e6, 2),
        "loopback_bytes_per_example": round((end.loopback_bytes - start.loopback_bytes) / examples),
        "chief_share": round(cpu.get("chief-0", 0.0) / total, 4),
        "peak_megabytes": peaks,
        "cpu_seconds": {name: round(value, 2) for name, value in cpu.items()},
        "others_cores": round(max(0.0, end.busy - start.busy - total) / seconds, 3),
        "stolen_cores": round((end.stolen - start.stolen) / seconds, 3),
    }


def _loopback_bytes() -> int:
    with open("/proc/net/dev") as file:
        for line in file:
            name, _, counters = line.partition(":")
            if name.strip() == "lo":
                return int(counters.split()[0])
    raise RuntimeError("/proc/net/dev has no line of the loopback interface")


def _peak_memory(process: int) -> int:
    with open(f"/proc/{process}/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0  # it has ended, and awaits being collected


def _machine_seconds() -> tuple[float, float]:
    """Busy and stolen CPU time over all cores."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, stolen = map(int, file.readline().split()[1:9])
    hertz = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / hertz, stolen / hertz
