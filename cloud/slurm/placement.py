"""Which node and port each task of a Slurm job has."""

import dataclasses
from collections.abc import Mapping, Sequence

from tfps.cluster.spec import JOBS, Cluster
from tfps.errors import UserError

HOSTS = "TFPS_HOSTS"
TASKS = "TFPS_TASKS"
FIRST_PORT = "TFPS_FIRST_PORT"
CHIEF_WORKS = "TFPS_CHIEF_WORKS"  # set where it does


@dataclasses.dataclass(frozen=True)
class Placement:
    """The tasks of a job on its nodes.

    Workers and ps go round the nodes, the chief is on the first and the evaluator on the last.
    Every task has a port of its own, whatever its node. Where a worker runs next to the chief,
    which counts as no task here, others begin at the second node, and at the port after its own.
    """

    hosts: Sequence[str]
    tasks: Mapping[str, int]
    first_port: int
    chief_works: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Placement":
        """Reads what the batch script has exported."""
        for name in (HOSTS, TASKS, FIRST_PORT):
            if not environ.get(name):
                raise UserError(
                    f"{name} is missing: this program is started by the batch script that "
                    "`python -m cloud.submit --target=slurm` writes"
                )
        counts = dict(pair.split("=") for pair in environ[TASKS].split())
        tasks = {job: int(counts.get(job, 0)) for job in JOBS}
        chief_works = CHIEF_WORKS in environ
        return cls(environ[HOSTS].split(), tasks, int(environ[FIRST_PORT]), chief_works)

    def nodes(self, job: str) -> list[str]:
        """The node of each task of a job, by index."""
        if job == "evaluator":
            return [self.hosts[-1]] * self.tasks[job]
        first = int(job == "worker" and self.chief_works)
        return [self.hosts[(first + i) % len(self.hosts)] for i in range(self.tasks[job])]

    def cluster(self) -> Cluster:
        """The addresses of all tasks; local mode for a chief alone."""
        if sum(self.tasks.values()) == 1:
            return Cluster()
        port = self.first_port
        addresses = {}
        for job in JOBS:
            nodes = self.nodes(job)
            addresses[job] = tuple(f"{node}:{port + i}" for i, node in enumerate(nodes))
            port += len(nodes) + int(job == "chief" and self.chief_works)
        return Cluster(
            addresses["chief"], addresses["worker"], addresses["ps"], addresses["evaluator"]
        )

    def resized(self, workers: int, ps: int) -> str:
        """What the batch script exports as the tasks, with other numbers of workers and ps."""
        return exported({**self.tasks, "worker": workers, "ps": ps})

    def most_on_a_node(self, needs: Mapping[str, int]) -> int:
        """The greatest sum of what one node's tasks need."""
        sums = dict.fromkeys(self.hosts, 0)
        for job, need in needs.items():
            for node in self.nodes(job):
                sums[node] += need
        return max(sums.values())


def exported(tasks: Mapping[str, int]) -> str:
    """Numbers of tasks as the batch script exports them."""
    return " ".join(f"{job}={count}" for job, count in tasks.items() if count)
