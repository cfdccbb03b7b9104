"""The description of a large cluster, as a file in each of its pods."""

from typing import Any

from cloud import cluster_in_file
from cloud.job_spec import JobSpec
from cloud.kubernetes.pod import MANAGED_BY
from tfps.cluster.tf_config import MOST_BYTES
from tfps.errors import UserError

_DIRECTORY, _FILE = "/etc/tfps", "cluster.json"
PATH = f"{_DIRECTORY}/{_FILE}"


def name(job: str) -> str:
    """The name of a job's ConfigMap."""
    return f"{job}-cluster"


def config_map(spec: JobSpec, cluster: dict[str, list[str]]) -> dict[str, Any]:
    """Renders it."""
    text = cluster_in_file.text(cluster)
    if len(text) > MOST_BYTES:
        raise UserError(
            f"{spec.tasks} tasks: their addresses are {len(text)} bytes, but a ConfigMap of "
            f"Kubernetes holds {MOST_BYTES}; ask for fewer tasks, or give a shorter --name"
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name(spec.name), "labels": {**spec.labels, **MANAGED_BY}},
        "immutable": True,
        "data": {_FILE: text},
    }


def volume(spec: JobSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap as a volume of a pod, and its mount in the container."""
    mount = {"name": "cluster", "mountPath": _DIRECTORY, "readOnly": True}
    return {"name": "cluster", "configMap": {"name": name(spec.name)}}, mount
