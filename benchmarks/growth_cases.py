"""The clusters and jobs by which `benchmarks.growth` tells how cost grows, and their floor."""

import dataclasses

from benchmarks.cases import STEP, WIRE
from benchmarks.results import Results, Spread

CLUSTER = "tfps"


@dataclasses.dataclass(frozen=True)
class Case:
    """A cluster and its job.

    Attributes:
        workers: How many.
        ps: How many.
        rows: Of all tables together.
        batch: Records per step of a worker.
        gbits: Rate of the ps's line each way, with 0.5 ms delay; 0 for the loopback interface.
    """

    workers: int = 2
    ps: int = 1
    rows: int = 1_000_000
    batch: int = 512
    gbits: int = 0

    @property
    def name(self) -> str:
        """For people."""
        return " ".join(f"{name}={value}" for name, value in dataclasses.asdict(self).items())


AXES = {
    "workers": [Case(workers=workers) for workers in (1, 2, 4, 8)],
    "ps": [Case(ps=ps) for ps in (1, 2, 4)],
    "rows": [Case(rows=10**power) for power in (4, 5, 6, 7, 8)],
    "batch": [Case(batch=batch) for batch in (64, 512, 2048, 8192)],
    "line": [Case(gbits=gbits, workers=n) for gbits in (0, 10, 1) for n in (1, 2, 4)],
}


def planned(axes: list[str]) -> list[tuple[Case, str]]:
    """Cases with their systems, each once; the floor's on one worker and one ps."""
    wanted = []
    for axis in axes:
        for case in AXES[axis]:
            wanted.append((case, CLUSTER))
            wanted += [(floor_of(case), system) for system in (STEP, WIRE)]
    return list(dict.fromkeys(wanted))


def floor_of(case: Case) -> Case:
    """The case on which a case's floor is measured."""
    return Case(workers=1, rows=case.rows, batch=case.batch)


def floor(results: Results[Case], case: Case) -> float | None:
    """CPU-seconds per million examples of a case's floor, if it was measured."""
    found = results.floor(floor_of(case))
    return Spread.of(list(found.values())).median if found else None
