"""What is put behind an address, on whatever platform."""

import dataclasses
import posixpath
from collections.abc import Mapping

from cloud import job_spec
from cloud.deployment.served_model import ServedModel
from tfps.errors import UserError

# TensorFlow Serving's newest release, August 2026. It serves what TensorFlow 2.21 has exported as
# long as the graph has no op that came after 2.20.
IMAGE = "tensorflow/serving:2.20.0"


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """How many servers, on machines of which kind; an empty text or 0 leaves it to the platform.

    A platform uses what it knows of the machine, and refuses what it cannot give: Vertex AI asks
    for a machine type, Kubernetes for CPUs and memory.
    """

    name: str
    _: dataclasses.KW_ONLY
    image: str = IMAGE
    min_replicas: int = 1
    max_replicas: int = 1
    machine: str = ""  # the platform's type, such as n2-standard-4
    cpus: int = 0  # cores of each server
    memory_bytes: int = 0  # of each server; 0 for what the model needs
    accelerator: str = ""  # the platform's name of a GPU, such as NVIDIA_L4
    accelerators: int = 0
    max_batch_size: int = 0  # most records of several requests; 0 computes each request alone
    service_account: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        job_spec.check_name(self.name)
        job_spec.check_labels(self.labels)
        if not self.image:
            raise UserError(f"--image is empty; leave it out for {IMAGE}")
        if self.max_replicas < self.min_replicas:
            raise UserError(
                f"--max_replicas={self.max_replicas} is less than "
                f"--min_replicas={self.min_replicas}; correct one of them"
            )

    @property
    def replicas(self) -> str:
        few, many = self.min_replicas, self.max_replicas
        return f"{few} replica{'s' * (few > 1)}" if few == many else f"{few} to {many} replicas"


def default_name(base: str) -> str:
    """The name of the job that exports a model; `ServerSettings` checks it as any other."""
    job = posixpath.basename(posixpath.dirname(base)) or posixpath.basename(base)
    return job.lower().replace("_", "-").replace(".", "-")


@dataclasses.dataclass(frozen=True)
class Deployment(ServerSettings):
    """One model, on how many machines of which kind."""

    model: ServedModel

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batch_size and any(feature.is_ragged for feature in self.model.features):
            raise UserError(
                f"--max_batch_size={self.max_batch_size}: the model has features of varying "
                "length, whose requests TensorFlow Serving cannot put together; leave it out"
            )
