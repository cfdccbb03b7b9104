"""What Vertex AI is asked for to serve a model, in the JSON of its API."""

import hashlib
import json
import math
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from cloud.deployment.deployment import Deployment
from cloud.vertex.checks import VertexSettings

LABEL = "tfps-deployment"  # of all that this program makes; its value is the deployment's name
OWN_ALIAS = "tfps-"  # begins the alias that tells what a version holds
NEW = "0"  # what a request to deploy calls the deployed model that it makes, in its traffic split
WHOLE = 100  # percents of an endpoint's traffic
_PORT = 8080
_SERVED = "default"  # what TensorFlow Serving calls the model
_HEALTH_ROUTE = f"/v1/models/{_SERVED}"
_PROBE_SECONDS = 10
_COPIES = "vertex"  # below the directory of all versions
_DIGITS = 16
_LEAST_SECONDS, _MOST_SECONDS = 600, 7200  # that a container may take to answer
_BYTES_PER_SECOND = 20e6  # that it surely loads
_BEFORE = "SERVED"  # in what is shown: what the endpoint serves before


class Requests:
    """The requests of one deployment that `checks.check` has passed."""

    def __init__(
        self, deployment: Deployment, settings: VertexSettings, aliases: Sequence[str] = ()
    ):
        model = deployment.model
        self.name = deployment.name
        self.model = model
        self.aliases = tuple(aliases)
        self.artifact = posixpath.join(model.base, _COPIES, model.digest[:_DIGITS])
        self._deployment = deployment
        self._settings = settings
        kms_key = settings.kms_key
        held = {"digest": model.digest, "container": self._container(), "kms_key": kms_key}
        digest = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
        self.alias = f"{OWN_ALIAS}{digest[:20]}"  # the same upload finds it again
        self._key = {"encryptionSpec": {"kmsKeyName": kms_key}} if kms_key else {}
        self._labels = {**deployment.labels, LABEL: deployment.name}

    @property
    def machines(self) -> str:
        """What it is served on, for people: `1 to 3 n2-standard-4 with NVIDIA_L4:1`."""
        mine = self._deployment
        least, most = mine.min_replicas, mine.max_replicas
        count = str(least) if least == most else f"{least} to {most}"
        gpus = f" with {mine.accelerator}:{mine.accelerators}" if mine.accelerator else ""
        return f"{count} {mine.machine}{gpus}"

    def version(self) -> dict[str, Any]:
        return {
            "displayName": self.name,
            "versionAliases": [self.alias, *self.aliases],
            "versionDescription": self.model.path,
            "labels": self._labels,
            "containerSpec": self._container(),
            "artifactUri": self.artifact,
            **self._key,
        }

    def endpoint(self) -> dict[str, Any]:
        return {"displayName": self.name, "labels": self._labels, **self._key}

    def deployed(self) -> dict[str, Any]:
        """The version on its machines, a DeployedModel."""
        mine = self._deployment
        machine: dict[str, Any] = {"machineType": mine.machine}
        if mine.accelerator:
            machine["acceleratorType"] = mine.accelerator
            machine["acceleratorCount"] = mine.accelerators
        found: dict[str, Any] = {
            "model": f"{self._settings.parent}/models/{self.name}@{self.alias}",
            "displayName": self.name,
            "dedicatedResources": {
                "machineSpec": machine,
                "minReplicaCount": mine.min_replicas,
                "maxReplicaCount": mine.max_replicas,
            },
        }
        return found | ({"serviceAccount": mine.service_account} if mine.service_account else {})

    def shown(self, share: int) -> tuple[dict[str, Any], ...]:
        """All that is sent where neither model nor endpoint exists; `share` in percents."""
        host = f"https://{self._settings.region}-aiplatform.googleapis.com"
        place = f"{host}/v1/{self._settings.parent}"
        deployed = {
            "deployedModel": self.deployed(),
            "trafficSplit": without_zeros({NEW: share, _BEFORE: WHOLE - share}),
        }
        bodies = {
            "models:upload": {"modelId": self.name, "model": self.version()},
            f"endpoints?endpointId={self.name}": self.endpoint(),
            f"endpoints/{self.name}:deployModel": deployed,
        }
        return tuple({"POST": f"{place}/{path}", "body": body} for path, body in bodies.items())

    def _container(self) -> dict[str, Any]:
        """TensorFlow Serving, with as much time to load as the model's size asks for."""
        minutes = math.ceil(self.model.variables_bytes / _BYTES_PER_SECOND / 60)
        seconds = min(_LEAST_SECONDS + 60 * minutes, _MOST_SECONDS)
        return {
            "imageUri": self._deployment.image,
            "args": [
                f"--rest_api_port={_PORT}",
                f"--model_name={_SERVED}",
                "--model_base_path=$(AIP_STORAGE_URI)",
                "--file_system_poll_wait_seconds=0",  # the copy never changes: look once
            ],
            "ports": [{"containerPort": _PORT}],
            "predictRoute": f"{_HEALTH_ROUTE}:predict",
            "healthRoute": _HEALTH_ROUTE,
            "deploymentTimeout": f"{seconds}s",
            "startupProbe": {**_probe(), "failureThreshold": -(-seconds // _PROBE_SECONDS)},
            "healthProbe": _probe(),
        }


def _probe() -> dict[str, Any]:
    """Vertex AI wants a probe to have as much time as there is until the next."""
    return {
        "httpGet": {"path": _HEALTH_ROUTE, "port": _PORT},
        "periodSeconds": _PROBE_SECONDS,
        "timeoutSeconds": _PROBE_SECONDS,
    }


def without_zeros(split: Mapping[str, int]) -> dict[str, int]:
    """A split as requests have it: a model that is not in it gets nothing."""
    return {name: share for name, share in split.items() if share}
