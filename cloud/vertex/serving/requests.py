"""The requests of a deployment, as data."""

import math
import posixpath
from collections.abc import Callable, Sequence
from typing import Any

from cloud.deployment.deployment import Deployment
from cloud.remote_target import Patience
from cloud.vertex.rest import Rest
from cloud.vertex.serving import traffic
from cloud.vertex.serving.endpoints import Endpoint, Endpoints, Operations
from cloud.vertex.serving.health import Predictions
from cloud.vertex.serving.models import Models
from cloud.vertex.serving.request_bodies import (
    NEW,
    Machines,
    ModelVersion,
    deploy_body,
    endpoint_body,
)
from cloud.vertex.serving.rollout import Rollout
from cloud.vertex.settings import VertexSettings

_COPIES = "vertex"  # below the directory of all versions
_DIGITS = 16
_LEAST_SECONDS, _MOST_SECONDS = 600, 7200  # that a container may take to answer
_BYTES_PER_SECOND = 20e6  # that it surely loads
_SERVED = "SERVED"  # in what is shown: what the endpoint serves before


class Region:
    """Models and endpoints of a region."""

    def __init__(
        self,
        settings: VertexSettings,
        endpoint: str,
        patience: Patience,
        say: Callable[[str], None],
    ):
        """Begins a session.

        Args:
            endpoint: What stands for Google's APIs on this machine; empty for those themselves.
        """
        rest = Rest.connect(endpoint, settings.project)
        url, parent = address(settings, endpoint), settings.parent
        self._region = settings.region
        self._operations = Operations(rest, url, patience, say)
        self.models = Models(rest, self._operations, url, parent, say)
        self.endpoints = Endpoints(rest, self._operations, url, parent)
        self.predictions = Predictions(rest, url, bool(endpoint))
        self.rollout = Rollout(self.endpoints, self.predictions, self.wait, say)

    def check_place(self, flag: str, path: str) -> None:
        """Refuses a bucket that lies elsewhere."""
        from cloud.vertex import staging  # it loads the client of Google Cloud Storage

        staging.check_region(flag, path, self._region)

    def wait(self, endpoint: Endpoint) -> None:
        """Waits until nothing is under way at an endpoint."""
        self._operations.wait_for_others(str(endpoint["name"]), str(endpoint["displayName"]))


def address(settings: VertexSettings, endpoint: str = "") -> str:
    """Address of Vertex AI, `/v1` included.

    Args:
        endpoint: What stands for Google's APIs; empty for those themselves.
    """
    return f"{endpoint or f'https://{settings.region}-aiplatform.googleapis.com'}/v1"


class Requests:
    """The requests of one deployment."""

    def __init__(
        self, deployment: Deployment, settings: VertexSettings, aliases: Sequence[str] = ()
    ):
        """Describes the deployment.

        Args:
            deployment: What is served; `checks.check` has found nothing wrong with it.
        """
        self._deployment = deployment
        self._settings = settings
        self._aliases = tuple(aliases)

    @property
    def machines(self) -> Machines:
        """What it is served on."""
        mine = self._deployment
        return Machines(
            mine.machine, mine.accelerator, mine.accelerators, mine.min_replicas, mine.max_replicas
        )

    @property
    def version(self) -> ModelVersion:
        """The version of the model."""
        mine, model = self._deployment, self._deployment.model
        minutes = math.ceil(model.variables_bytes / _BYTES_PER_SECOND / 60)
        seconds = _LEAST_SECONDS + 60 * minutes
        return ModelVersion(
            name=mine.name,
            artifact=posixpath.join(model.base, _COPIES, model.digest[:_DIGITS]),
            digest=model.digest,
            source=model.path,
            image=mine.image,
            load_seconds=min(seconds, _MOST_SECONDS),
            labels=mine.labels,
            kms_key=self._settings.kms_key,
            aliases=self._aliases,
        )

    def endpoint(self) -> dict[str, Any]:
        """The body of the request that makes the endpoint."""
        mine = self._deployment
        return endpoint_body(mine.name, mine.labels, self._settings.kms_key)

    def deploy(self, split: traffic.Split) -> dict[str, Any]:
        """The body of the request that deploys the version."""
        mine = self._deployment
        return deploy_body(self._model, mine.name, self.machines, mine.service_account, split)

    def shown(self, share: int) -> tuple[dict[str, Any], ...]:
        """All that `deploy` sends where there is neither a model nor an endpoint of that name."""
        split = {NEW: share, _SERVED: traffic.WHOLE - share}
        name = self._deployment.name
        return (
            self._shown("models:upload", self.version.request()),
            self._shown(f"endpoints?endpointId={name}", self.endpoint()),
            self._shown(f"endpoints/{name}:deployModel", self.deploy(split)),
        )

    @property
    def _model(self) -> str:
        return f"{self._settings.parent}/models/{self._deployment.name}@{self.version.alias}"

    def _shown(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        place = f"{address(self._settings)}/{self._settings.parent}"
        return {"POST": f"{place}/{path}", "body": body}
