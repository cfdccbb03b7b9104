"""The request that makes a version of a model, in the JSON of Vertex AI's REST API.

TensorFlow Serving serves the newest of the numbered directories below the one it is given. Vertex
AI copies a version's artifact when it is made, so the artifact has one numbered directory alone.
"""

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
