"""What is served in a project's region of Vertex AI: all that reaches it, put together."""

from collections.abc import Callable

from cloud.follower import Patience
from cloud.vertex.rest import Rest
from cloud.vertex.serving.endpoints import Endpoint, Endpoints
from cloud.vertex.serving.health import Predictions
from cloud.vertex.serving.models import Models
from cloud.vertex.serving.operations import Operations
from cloud.vertex.serving.rollout import Rollout
from cloud.vertex.settings import VertexSettings


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
