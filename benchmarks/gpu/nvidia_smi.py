"""What nvidia-smi says of this machine's GPUs and of who uses them; needs nothing installed."""

import dataclasses
import subprocess
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.failure import Failed

PROGRAM = "nvidia-smi"
_ANSWER_SECONDS = 60.0
_FORM = "--format=csv,noheader,nounits"
_GPU = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu")
_PROCESS = ("gpu_uuid", "pid", "used_memory")
_UNKNOWN = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]")
_NOBODY = "No running processes found"

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU at one moment.

    Attributes:
        index: Its number, in the order of PCI buses.
        uuid: NVIDIA's name of it.
        name: What it is.
        driver: The driver's version.
        memory_total: Of its memory, MiB.
        memory_used: By everybody, MiB.
        utilization: Percent of the time in which some kernel ran; None where it is not told, as
            under MIG.
    """

    index: int
    uuid: str
    name: str
    driver: str
    memory_total: int
    memory_used: int
    utilization: int | None


@dataclasses.dataclass(frozen=True)
class GpuProcess:
    """A process that has a CUDA context.

    Attributes:
        uuid: Of the GPU.
        pid: Its process id, as the driver counts: in a container without the machine's own process
            ids it is none of those seen there.
        memory: What it holds of the GPU's memory, MiB; None where that is not told.
    """

    uuid: str
    pid: int
    memory: int | None


def read_gpus() -> list[Gpu]:
    """All GPUs.

    Raises:
        Failed: If nvidia-smi cannot be run or says something else.
    """
    return parse_gpus(_ask(f"--query-gpu={','.join(_GPU)}"))


def read_processes() -> list[GpuProcess]:
    """All processes that compute on a GPU.

    Raises:
        Failed: If nvidia-smi cannot be run or says something else.
    """
    return parse_processes(_ask(f"--query-compute-apps={','.join(_PROCESS)}"))


def parse_gpus(text: str) -> list[Gpu]:
    """GPUs, from the answer to `--query-gpu`."""
    return _parse(text, len(_GPU), _gpu)


def parse_processes(text: str) -> list[GpuProcess]:
    """Processes, from the answer to `--query-compute-apps`."""
    return [] if text.strip() == _NOBODY else _parse(text, len(_PROCESS), _process)


def _gpu(cells: Sequence[str]) -> Gpu:
    index, uuid, name, driver, total, used, utilization = cells
    percent = _number(utilization)
    if percent is not None and not 0 <= percent <= 100:
        raise ValueError(f"{percent} is no percentage")
    return Gpu(int(index), uuid, name, driver, int(total), int(used), percent)


def _process(cells: Sequence[str]) -> GpuProcess:
    uuid, pid, memory = cells
    return GpuProcess(uuid, int(pid), _number(memory))


def _number(text: str) -> int | None:
    return None if text in _UNKNOWN else int(text)


def _parse(text: str, count: int, make: Callable[[Sequence[str]], Value]) -> list[Value]:
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        try:
            if len(cells) != count:
                raise ValueError(f"{len(cells)} values instead of {count}")
            found.append(make(cells))
        except ValueError as error:
            raise Failed(f"{PROGRAM} says {line!r}, which is not understood: {error}") from None
    return found


def _ask(query: str) -> str:
    command = [PROGRAM, query, _FORM]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except FileNotFoundError:
        raise Failed(
            f"this machine has no {PROGRAM}, so no NVIDIA GPU that can be used: run this where "
            "NVIDIA's driver is installed"
        ) from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{PROGRAM} has not answered within {_ANSWER_SECONDS:g} s") from None
    if answer.returncode:
        said = (answer.stderr or answer.stdout).strip().replace("\n", " ")
        raise Failed(f"{PROGRAM} ends with {answer.returncode}: {said or 'it says nothing'}")
    return answer.stdout
