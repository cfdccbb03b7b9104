"""What a pod asks of its node, and what it may do there."""

from typing import Any, Protocol

USER = 1000  # of the image that `make image` builds
_GPU = "nvidia.com/gpu"
_GKE_GPU = "cloud.google.com/gke-accelerator"
_GKE_SPOT = "cloud.google.com/gke-spot"
_UNITS = {"Gi": 1 << 30, "Mi": 1 << 20, "Ki": 1 << 10}


class Hardware(Protocol):
    """What is asked for, as `Role` and `Deployment` have it."""

    @property
    def machine(self) -> str:
        """The nodes' instance type; empty for any."""

    @property
    def cpus(self) -> int:
        """CPU cores; 0 for no request."""

    @property
    def memory_bytes(self) -> int:
        """Memory; 0 for no request."""

    @property
    def accelerator(self) -> str:
        """The cluster's resource, or GKE's name of NVIDIA's GPUs; empty for none."""

    @property
    def accelerators(self) -> int:
        """How many of these."""


def pod_security() -> dict[str, Any]:
    """A user without rights, who may write to the pod's volumes."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """No privileges, and nothing to write to but volumes."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def resources(asked: Hardware, disk_gb: int = 0) -> dict[str, Any]:
    """A container's `resources`; the memory is its limit, too.

    Args:
        disk_gb: Scratch space in GB; 0 for no request.
    """
    requests, limits = {}, {}
    if asked.cpus:
        requests["cpu"] = str(asked.cpus)
    if asked.memory_bytes:
        requests["memory"] = limits["memory"] = quantity(asked.memory_bytes)
    if disk_gb:
        requests["ephemeral-storage"] = f"{disk_gb}G"
    if asked.accelerators:
        limits[_gpu_resource(asked)] = str(asked.accelerators)
    named = {"requests": requests, "limits": limits}
    return {name: found for name, found in named.items() if found}


def placement(asked: Hardware, spot: bool = False) -> dict[str, Any]:
    """The part of a pod's `spec` that says which nodes it may be on.

    Args:
        spot: Whether the pod is on nodes that may be taken away.
    """
    selector: dict[str, str] = {}
    tolerations = []
    if asked.machine:
        selector["node.kubernetes.io/instance-type"] = asked.machine
    if asked.accelerator and "/" not in asked.accelerator:
        selector[_GKE_GPU] = asked.accelerator
    if asked.accelerators:
        tolerations.append(
            {"key": _gpu_resource(asked), "operator": "Exists", "effect": "NoSchedule"}
        )
    if spot:
        selector[_GKE_SPOT] = "true"
        tolerations.append(
            {"key": _GKE_SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        )
    named: dict[str, Any] = {"nodeSelector": selector, "tolerations": tolerations}
    return {name: found for name, found in named.items() if found}


def quantity(number: int) -> str:
    """A number of bytes as Kubernetes writes it."""
    unit = next((unit for unit, size in _UNITS.items() if number % size == 0), "")
    return f"{number // _UNITS.get(unit, 1)}{unit}"


def _gpu_resource(asked: Hardware) -> str:
    """A name with a slash is the cluster's own resource; others are GKE's names of NVIDIA's."""
    return asked.accelerator if "/" in asked.accelerator else _GPU
