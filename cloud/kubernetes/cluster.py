"""A namespace of a Kubernetes cluster, reached with the Kubernetes client."""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cloud import optional_imports
from tfps.errors import RunError, UserError

_EXTRA = "kubernetes"
_REQUEST_SECONDS = (10.0, 60.0)  # to connect, and for the answer
_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0)  # between tries, if the server does not say
_LONGEST_WAIT = 60.0
_TRANSIENT = (429, 500, 502, 503, 504)
_IN_POD = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_T = TypeVar("_T")


class RefusedError(UserError):
    """A request that the cluster refuses.

    Attributes:
        status: The HTTP status: 404 for what there is not, 409 for what there is already.
    """

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class KubernetesCluster:
    """The cluster of a kubeconfig, or the one that this program runs in."""

    def __init__(self, namespace: str = "", context: str = ""):
        """Reads the credentials; connects to nothing.

        Args:
            namespace: Empty for that of the context.
            context: Of the kubeconfig; empty for its current one.
        """
        client = optional_imports.load("kubernetes.client", _EXTRA)
        config = optional_imports.load("kubernetes.config", _EXTRA)
        self._api_error = client.ApiException
        self._http_error = optional_imports.load("urllib3.exceptions", _EXTRA).HTTPError
        configuration = client.Configuration()
        configuration.retries = False  # `call` repeats what may be repeated
        # The client reads the variable, and forgets it.
        configuration.no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        own = _configure(config, configuration, context)
        self.namespace = namespace or own
        self._api = client.ApiClient(configuration)
        self.custom_objects = client.CustomObjectsApi(self._api)
        self.core = client.CoreV1Api(self._api)
        self.networking = client.NetworkingV1Api(self._api)

    def call(self, what: str, send: Callable[[tuple[float, float]], _T]) -> _T:
        """Sends a request, again after a while if the cluster is busy or away."""
        for wait in (*_WAITS, None):
            try:
                return send(_REQUEST_SECONDS)
            except self._api_error as error:
                if error.status not in _TRANSIENT:
                    raise RefusedError(f"cannot {what}: {_reason(error)}", error.status) from None
                seen, asked = f"it answered {_reason(error)}", _retry_after(error)
            except self._http_error as error:
                seen, asked = str(error), None
            if wait is None:
                break
            time.sleep(min(wait if asked is None else asked, _LONGEST_WAIT))
        raise RunError(
            f"cannot {what}: the cluster at {self._api.configuration.host} does not serve: {seen}; "
            "look at it with `kubectl cluster-info`, then try again"
        )

    def request(
        self,
        what: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Sends a request that may well be made twice, to where the client has no method for it."""
        answer: dict[str, Any] = self.call(
            what,
            lambda limit: self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                response_type="object",
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _request_timeout=limit,
            ),
        )
        return answer

    def plain(self, answer: Any) -> Any:
        """An answer of the client as JSON has it."""
        return self._api.sanitize_for_serialization(answer)


def _configure(config: Any, configuration: Any, context: str) -> str:
    """Sets address and credentials; returns the context's namespace."""
    path = os.environ.get("KUBECONFIG")  # which the client itself reads only when it is loaded
    try:
        config.load_kube_config(path, context or None, configuration)
        contexts, current = config.list_kube_config_contexts(path)
    except config.ConfigException as error:
        if context or "KUBERNETES_SERVICE_HOST" not in os.environ:
            given = f"--kube_context={context}" if context else "no --kube_context"
            raise UserError(
                f"the kubeconfig cannot be used ({given}): {error}; `kubectl config get-contexts` "
                "lists what there is"
            ) from None
        config.load_incluster_config(client_configuration=configuration)
        with open(_IN_POD) as file:
            return file.read().strip()
    chosen = next((each for each in contexts if each["name"] == context), current)
    return str(chosen["context"].get("namespace") or "default")


def _reason(error: Any) -> str:
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason
    return f"{error.status}: {message}"


def _retry_after(error: Any) -> float | None:
    text = (error.headers or {}).get("Retry-After", "")
    return float(text) if text.isdecimal() else None
