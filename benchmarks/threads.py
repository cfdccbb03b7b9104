"""What each thread of a process took between two moments, as Linux counts it."""

import os
from typing import NamedTuple

MAIN = "main"
_TICKS = os.sysconf("SC_CLK_TCK")
_WAITED = "voluntary_ctxt_switches:"


class Thread(NamedTuple):
    """What a thread has taken since it began.

    Attributes:
        name: As it was named, at most 15 characters of it; `MAIN` of the first one.
        cpu_seconds: CPU time, the kernel's included.
        waits: How often it has slept until something woke it.
    """

    name: str
    cpu_seconds: float
    waits: int


def read(process: int) -> dict[int, Thread]:
    """The threads of a process by their numbers, without those that end meanwhile.

    Args:
        process: The process id.

    Raises:
        FileNotFoundError: If the process has ended.
    """
    found = {}
    for number in os.listdir(f"/proc/{process}/task"):
        try:
            thread = _thread(f"/proc/{process}/task/{number}")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended: what it took is in the process's time alone
        found[int(number)] = thread._replace(name=MAIN) if int(number) == process else thread
    return found


def process_seconds(process: int) -> float:
    """CPU time of a process with all threads that it ever had."""
    return _seconds(f"/proc/{process}/stat")[1]


def between(before: dict[int, Thread], after: dict[int, Thread]) -> dict[int, Thread]:
    """What threads took from one reading to another, of those that were there at its end."""
    none = Thread("", 0.0, 0)
    return {
        number: Thread(
            thread.name,
            thread.cpu_seconds - before.get(number, none).cpu_seconds,
            thread.waits - before.get(number, none).waits,
        )
        for number, thread in after.items()
    }


def by_name(found: dict[int, Thread]) -> dict[str, Thread]:
    """What all threads of a name took, together."""
    sums: dict[str, Thread] = {}
    for each in found.values():
        others = sums.get(each.name, Thread(each.name, 0.0, 0))
        seconds, waits = each.cpu_seconds + others.cpu_seconds, each.waits + others.waits
        sums[each.name] = Thread(each.name, seconds, waits)
    return sums


def _thread(directory: str) -> Thread:
    name, seconds = _seconds(f"{directory}/stat")
    with open(f"{directory}/status", encoding="ascii", errors="replace") as file:
        [waits] = [int(line.split()[1]) for line in file if line.startswith(_WAITED)]
    return Thread(name, seconds, waits)


def _seconds(path: str) -> tuple[str, float]:
    """Name and CPU time."""
    with open(path, encoding="ascii", errors="replace") as file:
        name, _, fields = file.read().partition("(")[2].rpartition(")")
    user, system = fields.split()[11:13]
    return name, (int(user) + int(system)) / _TICKS
