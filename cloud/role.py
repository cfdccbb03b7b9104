"""The tasks of one role of a job, and the machine that each of them gets."""

import dataclasses

from tfps.cluster.spec import JOBS
from tfps.errors import UserError

_SINGLE = ("chief", "evaluator")  # of which a job has at most one


@dataclasses.dataclass(frozen=True)
class Role:
    """So many equal tasks of a job.

    A platform uses what it knows of the machine, and refuses what it cannot give: Vertex AI asks
    for a machine type, Kubernetes and Slurm for CPUs and memory.

    Attributes:
        machine: The platform's machine type, such as n2-standard-8; empty for its choice.
        cpus: CPU cores of each task; 0 for the platform's choice.
        memory_bytes: Memory of each task; 0 for the platform's choice.
        accelerator: The platform's name of a GPU, such as NVIDIA_L4; empty for none.
        disk_gb: Boot disk or scratch space of each task, in GB; 0 for the platform's choice.
        disk_type: The platform's disk type, such as pd-ssd; empty for its choice.
    """

    job: str
    replicas: int = 1
    machine: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    accelerator: str = ""
    accelerators: int = 0
    disk_gb: int = 0
    disk_type: str = ""

    def __post_init__(self) -> None:
        if self.job not in JOBS:
            raise UserError(f"role {self.job!r} is unknown; use one of {', '.join(JOBS)}")
        if self.replicas < 1:
            raise UserError(
                f"{self.job}: {self.replicas} tasks; give 1 or more, or leave the role out"
            )
        if self.job in _SINGLE and self.replicas > 1:
            raise UserError(f"{self.job}: {self.replicas} tasks; a job has one {self.job} at most")
        for name in ("cpus", "memory_bytes", "accelerators", "disk_gb"):
            if getattr(self, name) < 0:
                raise UserError(f"{self.job}: {name}={getattr(self, name)} must be 0 or more")
        if bool(self.accelerator) != bool(self.accelerators):
            raise UserError(
                f"{self.job}: accelerator={self.accelerator!r}, accelerators={self.accelerators}; "
                f"give both, as in --{self.job}_accelerator=NVIDIA_L4:1, or neither"
            )
