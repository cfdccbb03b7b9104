"""The requests about an endpoint, in the JSON of Vertex AI's REST API."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

PORT = 8080
SERVED = "default"  # what TensorFlow Serving calls the model
HEALTH_ROUTE = f"/v1/models/{SERVED}"
PREDICT_ROUTE = f"{HEALTH_ROUTE}:predict"
OWN_ALIAS = "tfps-"  # begins the alias that tells what a version holds
LABEL = "tfps-deployment"  # of all that this program makes; its value is the deployment's name
_PROBE_SECONDS = 10
NEW = "0"  # what a request to deploy calls the deployed model that it makes, in its traffic split


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version of a model, as it is uploaded.

    Attributes:
        load_seconds: How long a container may take until it answers.
        kms_key: Key that encrypts what is kept of it; empty for Google's own.
    """

    name: str
    artifact: str
    digest: str
    source: str
    image: str
    load_seconds: int
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kms_key: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def alias(self) -> str:
        """A name of the version that tells what it holds and how it is served.

        Whoever uploads the same again finds it by that.
        """
        held = {"digest": self.digest, "container": self._container(), "kms_key": self.kms_key}
        text = json.dumps(held, sort_keys=True)
        return f"{OWN_ALIAS}{hashlib.sha256(text.encode()).hexdigest()[:20]}"

    @property
    def label(self) -> dict[str, str]:
        """All labels, this program's own among them."""
        return {**self.labels, LABEL: self.name}

    def request(self) -> dict[str, Any]:
        """The body of `POST …/models:upload` for the first version of a model."""
        model: dict[str, Any] = {
            "displayName": self.name,
            "versionAliases": [self.alias, *self.aliases],
            "versionDescription": self.source,
            "labels": self.label,
            "containerSpec": self._container(),
            "artifactUri": self.artifact,
        }
        if self.kms_key:
            model["encryptionSpec"] = {"kmsKeyName": self.kms_key}
        return {"modelId": self.name, "model": model}

    def _container(self) -> dict[str, Any]:
        failures = -(-self.load_seconds // _PROBE_SECONDS)
        return {
            "imageUri": self.image,
            "args": [
                f"--rest_api_port={PORT}",
                f"--model_name={SERVED}",
                "--model_base_path=$(AIP_STORAGE_URI)",
                "--file_system_poll_wait_seconds=0",  # the copy never changes: look once
            ],
            "ports": [{"containerPort": PORT}],
            "predictRoute": PREDICT_ROUTE,
            "healthRoute": HEALTH_ROUTE,
            "deploymentTimeout": f"{self.load_seconds}s",
            "startupProbe": {**_probe(), "failureThreshold": failures},
            "healthProbe": _probe(),
        }


def _probe() -> dict[str, Any]:
    """Vertex AI wants a probe to have as much time as there is until the next."""
    return {
        "httpGet": {"path": HEALTH_ROUTE, "port": PORT},
        "periodSeconds": _PROBE_SECONDS,
        "timeoutSeconds": _PROBE_SECONDS,
    }


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
