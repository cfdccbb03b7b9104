"""What the objects of a deployment are called, and by which labels they are found."""

from collections.abc import Mapping
from typing import Any

from cloud.deployment.deployment import Deployment
from cloud.kubernetes.pod import MANAGED_BY

GRPC_PORT, REST_PORT = 8500, 8501
MODEL = "tfps/model"  # annotation: the version's directory
_KIND = {"app.kubernetes.io/name": "tensorflow-serving"}
_INSTANCE = "app.kubernetes.io/instance"


def object_name(name: str) -> str:
    """The name of a deployment's objects; a job may have the deployment's own."""
    return f"{name}-serving"


def selector(name: str) -> dict[str, str]:
    """Labels that a deployment's pods have, and no others."""
    return {**_KIND, _INSTANCE: name}


def labels(deployment: Deployment) -> dict[str, str]:
    """Labels of all its objects."""
    return {**deployment.labels, **selector(deployment.name), **MANAGED_BY}


def metadata(deployment: Deployment) -> dict[str, Any]:
    """The `metadata` of most of its objects."""
    return {"name": object_name(deployment.name), "labels": labels(deployment)}


def annotations(model: str) -> dict[str, str]:
    """Annotations of a Deployment; `kubectl rollout history` shows the second."""
    return {MODEL: model, "kubernetes.io/change-cause": model}


def owned(name: str = "") -> dict[str, str]:
    """Labels by which the objects of a deployment, or of all, are found."""
    return {**_KIND, **MANAGED_BY, **({_INSTANCE: name} if name else {})}


def deployment_of(labels: Mapping[str, str]) -> str:
    """Name of the deployment that an object with these labels is of."""
    return labels.get(_INSTANCE, "")
