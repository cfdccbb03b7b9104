"""How fast a cluster trains, by what a step of one worker takes.

Workers are customers of a closed network of queues: each goes from its own part of a step to what
all workers share, and waits there behind the others. Mean value analysis gives the step's seconds
(Reiser and Lavenberg: Mean-value analysis of closed multichain queuing networks, J. ACM 27, 1980).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from tfps.job_dir.size import Size

# What bounds a run. A ps has two lines: what is pulled leaves it, what is pushed comes to it.
CORES, PS, PULLS, PUSHES, CHIEF, WORKER = "cores", "ps", "pulls", "pushes", "chief", "worker"
_BUSY = 0.75  # of its time, from which on a shared thing is what bounds
# CPU time of a step for each ps that it asks, on all tasks together: docs/plan.md.
_PS_CPU_SECONDS = 3e-3
# What each more task on a machine that all share adds to the CPU time of a step, as a part of it.
_CROWD = 0.03
# From so busy on, what all share says less and less of the workers' own part, and then nothing: any
# part that is hidden behind it would do.
_HIDES, _HIDES_ALL = 0.8, 0.95
_CORES_OF_STEP = 2.0  # that a step keeps busy at most, where it was not seen alone
_ROUNDS = 60  # of a bisection


class Machine(NamedTuple):
    """What a task has."""

    cpus: float
    network: float = math.inf  # bytes a second, each way


class Machines(NamedTuple):
    """What the tasks of each role have; or all of them together, where they share one machine."""

    chief: Machine
    worker: Machine
    ps: Machine
    are_one: bool = False

    @classmethod
    def shared(cls, machine: Machine) -> "Machines":
        return cls(machine, machine, machine, are_one=True)


@dataclasses.dataclass(frozen=True)
class StepCosts:
    """What a step of one worker takes of whom, in seconds of CPU and in bytes."""

    examples: int
    worker_cpu: float
    ps_cpu: float  # of all ps together
    chief_cpu: float
    pulled_bytes: float  # from all ps together
    pushed_bytes: float
    own_seconds: float = 0.0  # that pass on the worker, whoever else there is

    @property
    def cpu(self) -> float:
        return self.worker_cpu + self.ps_cpu + self.chief_cpu

    def with_other_ps(self, before: int, now: int) -> "StepCosts":
        """The costs where messages go to another number of ps; half of a message's are the ps'."""
        half = max(_PS_CPU_SECONDS * (now - before) / 2, -0.5 * min(self.worker_cpu, self.ps_cpu))
        return dataclasses.replace(
            self, worker_cpu=self.worker_cpu + half, ps_cpu=self.ps_cpu + half
        )

    def with_other_tasks(self, more: int) -> "StepCosts":
        """The costs with further tasks on a machine that all share; fewer tasks if negative."""
        times = max(0.5, 1 + _CROWD * more)
        return dataclasses.replace(
            self,
            worker_cpu=times * self.worker_cpu,
            ps_cpu=times * self.ps_cpu,
            chief_cpu=times * self.chief_cpu,
        )

    def moved(self, ps: int, before: Machines, now: Machines) -> "StepCosts":
        """The costs on other machines."""
        own = self.own_seconds
        if before.are_one and not now.are_one:
            # There the cores were a queue for all, as if a step could use them all; what a step
            # computes on fewer is in its own part.
            own -= self.cpu * max(0.0, 1 / _CORES_OF_STEP - 1 / before.worker.cpus)
            own = max(0.0, own) + self.worker_cpu / min(now.worker.cpus, _CORES_OF_STEP)
            own += self.ps_cpu / ps * (1 - 1 / now.ps.cpus)
        elif not before.are_one:
            used = min(max(self.worker_cpu / own, 1.0), before.worker.cpus) if own else 1.0
            if now.worker.cpus < used:
                own += self.worker_cpu / now.worker.cpus - self.worker_cpu / used
        own += self._line_seconds(ps, now) - self._line_seconds(ps, before)
        return dataclasses.replace(self, own_seconds=max(0.0, own))

    def _line_seconds(self, ps: int, machines: Machines) -> float:
        """How much longer a worker's own line is busy than that of a ps, in which others wait."""
        sent = self.pulled_bytes + self.pushed_bytes
        return max(0.0, sent / machines.worker.network - sent / ps / machines.ps.network)


class Forecast(NamedTuple):
    """How fast a cluster is expected to be."""

    size: Size
    examples_per_second: float
    step_seconds: float
    busy: Mapping[str, float]  # parts of its time, 0 to 1, by what workers share

    @property
    def bound(self) -> str:
        """What bounds it: the busiest of what all share, else the workers' own part of a step."""
        busiest = max(self.busy, key=lambda name: self.busy[name])
        return busiest if self.busy[busiest] >= _BUSY else WORKER


def forecast(costs: StepCosts, size: Size, machines: Machines) -> Forecast:
    """How fast `size` is, for costs with as many ps."""
    queues = _queues(costs, size.ps, machines)
    seconds = _cycle(size.workers, costs.own_seconds, queues)
    steps = size.workers / seconds
    busy = {name: min(1.0, steps * demand) for name, demand in queues.items()}
    return Forecast(size, steps * costs.examples, seconds, busy)


def with_own_seconds(costs: StepCosts, size: Size, machines: Machines, seconds: float) -> StepCosts:
    """The costs with such an own part of the workers that a step takes as long as was measured.

    Where what they share is busy all the time they have none: a worker alone would be as fast.
    """
    queues = _queues(costs, size.ps, machines)
    low, high = 0.0, seconds
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if _cycle(size.workers, middle, queues) < seconds:
            low = middle
        else:
            high = middle
    busy = max(queues.values()) * size.workers / seconds
    seen = min(1.0, max(0.0, (_HIDES_ALL - busy) / (_HIDES_ALL - _HIDES)))
    return dataclasses.replace(costs, own_seconds=seen * low)


def _queues(costs: StepCosts, ps: int, machines: Machines) -> dict[str, float]:
    """Seconds that a step keeps each thing busy that workers share."""
    # All ps work at the same time, each on its part: together they are one queue.
    line = ps * machines.ps.network
    network = {PULLS: costs.pulled_bytes / line, PUSHES: costs.pushed_bytes / line}
    if machines.are_one:
        return {CORES: costs.cpu / machines.worker.cpus, **network}
    return {
        PS: costs.ps_cpu / ps / machines.ps.cpus,
        CHIEF: costs.chief_cpu / machines.chief.cpus,
        **network,
    }


def _cycle(workers: int, own: float, queues: Mapping[str, float]) -> float:
    """Seconds of a step where so many workers take turns."""
    lengths = dict.fromkeys(queues, 0.0)
    cycle = own
    for count in range(1, workers + 1):
        waits = {name: demand * (1 + lengths[name]) for name, demand in queues.items()}
        cycle = own + sum(waits.values())
        lengths = {name: wait * count / cycle for name, wait in waits.items()}
    return cycle
