"""The requests of a deployment, as data."""

import math
import posixpath
from collections.abc import Sequence
from typing import Any

from cloud.deployment.deployment import Deployment
from cloud.vertex.serving import traffic
from cloud.vertex.serving.endpoint_requests import NEW, Machines, deploy_body, endpoint_body
from cloud.vertex.serving.model_version import ModelVersion
from cloud.vertex.serving.region import address
from cloud.vertex.settings import VertexSettings

_COPIES = "vertex"  # below the directory of all versions
_DIGITS = 16
_LEAST_SECONDS, _MOST_SECONDS = 600, 7200  # that a container may take to answer
_BYTES_PER_SECOND = 20e6  # that it surely loads
_SERVED = "SERVED"  # in what is shown: what the endpoint serves before


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
