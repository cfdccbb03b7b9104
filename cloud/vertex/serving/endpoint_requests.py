"""The requests about an endpoint, in the JSON of Vertex AI's REST API."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from cloud.vertex.serving.model_version import LABEL

NEW = "0"  # what a request to deploy calls the deployed model that it makes, in its traffic split


@dataclasses.dataclass(frozen=True)
class Machines:
    """What a model is served on.

    Attributes:
        machine: Machine type, such as n2-standard-4.
        accelerator: GPU of each machine, empty for none.
    """

    machine: str
    accelerator: str = ""
    accelerators: int = 0
    min_replicas: int = 1
    max_replicas: int = 1

    @property
    def spec(self) -> dict[str, Any]:
        """One machine."""
        found: dict[str, Any] = {"machineType": self.machine}
        if self.accelerator:
            found |= {
                "acceleratorType": self.accelerator,
                "acceleratorCount": self.accelerators,
            }
        return found

    @property
    def shown(self) -> str:
        """All of it for people: `1 to 3 n2-standard-4 with NVIDIA_L4:1`."""
        least, most = self.min_replicas, self.max_replicas
        count = str(least) if least == most else f"{least} to {most}"
        gpus = f" with {self.accelerator}:{self.accelerators}" if self.accelerator else ""
        return f"{count} {self.machine}{gpus}"


def endpoint_body(name: str, labels: Mapping[str, str], kms_key: str) -> dict[str, Any]:
    """The body of `POST …/endpoints?endpointId=NAME`.

    Args:
        kms_key: Key that encrypts what is kept of it; empty for Google's own.
    """
    body: dict[str, Any] = {"displayName": name, "labels": {**labels, LABEL: name}}
    return body | ({"encryptionSpec": {"kmsKeyName": kms_key}} if kms_key else {})


def deploy_body(
    model: str, title: str, machines: Machines, service_account: str, split: Mapping[str, int]
) -> dict[str, Any]:
    """The body of `POST ENDPOINT:deployModel`; who sends it adds the deployed model's id.

    Args:
        service_account: Account that the container runs as; empty for one without rights.
    """
    deployed: dict[str, Any] = {
        "model": model,
        "displayName": title,
        "dedicatedResources": {
            "machineSpec": machines.spec,
            "minReplicaCount": machines.min_replicas,
            "maxReplicaCount": machines.max_replicas,
        },
    }
    if service_account:
        deployed["serviceAccount"] = service_account
    return {"deployedModel": deployed, "trafficSplit": without_zeros(split)}


def scale_body(deployed_id: str, replicas: Mapping[str, int]) -> dict[str, Any]:
    """The body of `POST ENDPOINT:mutateDeployedModel`."""
    return {
        "deployedModel": {"id": deployed_id, "dedicatedResources": dict(replicas)},
        "updateMask": ",".join(f"dedicatedResources.{name}" for name in replicas),
    }


def undeploy_body(deployed_id: str, split: Mapping[str, int]) -> dict[str, Any]:
    """The body of `POST ENDPOINT:undeployModel`.

    Args:
        split: The endpoint's traffic from then on; empty if nothing is left.
    """
    body: dict[str, Any] = {"deployedModelId": deployed_id}
    return body | ({"trafficSplit": without_zeros(split)} if split else {})


def without_zeros(split: Mapping[str, int]) -> dict[str, int]:
    """A split as requests have it: whoever is not in it gets nothing."""
    return {name: share for name, share in split.items() if share}
