"""The platform that started this task, as the environment tells."""

import enum
import json
from collections.abc import Mapping

from tfps.cluster.spec import CLUSTER_SPEC, TF_CONFIG, Cluster


class Platform(enum.Enum):
    """Where a task runs; the value is its name for people."""

    VERTEX = "Vertex AI"
    JOBSET = "Kubernetes (JobSet)"
    TFJOB = "Kubernetes (TFJob)"
    KUBERNETES = "Kubernetes"
    SLURM = "Slurm"
    LOCAL = "this machine"

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Platform":
        """Reads the platform from the variables that it sets.

        Args:
            environ: The environment variables, for example `os.environ`.
        """
        if any(
            name in environ for name in (CLUSTER_SPEC, "CLOUD_ML_PROJECT_ID", "CLOUD_ML_JOB_ID")
        ):
            return cls.VERTEX
        if "SLURM_JOB_ID" in environ and "SLURM_PROCID" in environ:
            return cls.SLURM
        if "JOBSET_NAME" in environ:
            return cls.JOBSET
        if "KUBERNETES_SERVICE_HOST" in environ:
            return cls.TFJOB if _is_of_tfjob(environ.get(TF_CONFIG, "")) else cls.KUBERNETES
        return cls.LOCAL

    @property
    def collects_json(self) -> bool:
        """Whether what tasks write to stderr is read by a program that understands JSON."""
        return self in (Platform.VERTEX, Platform.JOBSET, Platform.TFJOB, Platform.KUBERNETES)

    def role(self, cluster: Cluster) -> str:
        """What a task is and where, for example "worker 1 of 4 on Vertex AI"."""
        return f"{'the only task' if cluster.is_local else cluster.name} on {self.value}"


def _is_of_tfjob(tf_config: str) -> bool:
    """Whether the training operator wrote it, which alone on Kubernetes adds "environment"."""
    try:
        config = json.loads(tf_config)
    except ValueError:
        return False
    return isinstance(config, dict) and config.get("environment") == "cloud"
