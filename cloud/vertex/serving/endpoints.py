"""Models and endpoints on Vertex AI, and the operations on them: each is made once."""

import posixpath
import time
from collections.abc import Callable, Mapping
from typing import Any

from google.api_core import exceptions

from cloud.deployment import model_files
from cloud.deployment.served_model import ServedModel, digest_of
from cloud.remote_target import PollOptions
from cloud.vertex.client import Client, RefusedError, check_bucket
from cloud.vertex.serving.requests import LABEL, Requests, without_zeros
from tfps.errors import RunError, UserError
from tfps.export.exported_files import GRAPH_FILE
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name

_SECONDS_BETWEEN_LINES = 60.0
_MOST_TRIES = 5
_CONFLICT = 409
Endpoint = Any  # messages of Vertex AI's
DeployedModel = Any


class OperationFailedError(RunError):
    """An operation that Vertex AI has ended without its effect."""


class Operations:
    def __init__(self, client: Client, polling: PollOptions, say: Callable[[str], None]):
        self._client = client
        self._polling = polling
        self._say = say

    def run(
        self,
        resource: str,
        what: str,
        is_done: Callable[[], bool],
        method: Callable[..., Any],
        **request: Any,
    ) -> None:
        """Asks for an operation on a resource, once, and follows it to its end.

        `is_done` looks whether it has had its effect, perhaps by an earlier try or command.
        """

        def find() -> dict[str, Any] | None:
            return {"done": True} if is_done() else next(iter(self._running(resource)), None)

        for _ in range(_MOST_TRIES):
            try:
                begun = self._client.call(method, find, **request)
                found = begun if isinstance(begun, dict) else {"name": begun.operation.name}
                self._wait(found, what)
            except RefusedError as refusal:
                if refusal.status == _CONFLICT:  # somebody makes the same
                    self.wait_for_others(resource, what)
                elif not is_done():
                    raise
            if is_done():
                return  # else it was another operation that `find` has found
        raise RunError(f"{what}: others change {resource} all the time; try again later")

    def wait_for_others(self, resource: str, what: str) -> None:
        """Waits until none is running on a resource, however they end."""
        for operation in self._running(resource):
            try:
                self._wait(operation, f"{what}: an operation that an earlier command has begun")
            except OperationFailedError as error:
                self._say(str(error))

    def _running(self, resource: str) -> list[dict[str, Any]]:
        return [each for each in self._client.operations(resource) if not each.get("done")]

    def _wait(self, operation: dict[str, Any], what: str) -> None:
        name = str(operation.get("name", ""))
        begin = reported = time.monotonic()
        rest = f"{name} continues; the same command waits for it again"
        try:
            while not operation.get("done"):
                now = time.monotonic()
                if now - begin >= self._polling.limit_seconds:
                    limit = f"{self._polling.limit_seconds:g} s (--wait_seconds)"
                    raise RunError(f"{what}: not done after {limit}; {rest}")
                if now - reported >= _SECONDS_BETWEEN_LINES:
                    reported = now
                    self._say(f"{what}: {now - begin:.0f} s")
                time.sleep(self._polling.poll_seconds)
                operation = self._client.operation(name)
        except KeyboardInterrupt:
            self._say(f"{what}: interrupted; {rest}")
            raise
        if error := operation.get("error"):
            text = " ".join(str(error.get("message", "")).split()) or f"code {error.get('code')}"
            raise OperationFailedError(f"{what}: {text}")


class Models:
    def __init__(self, client: Client, operations: Operations, say: Callable[[str], None]):
        self._client = client
        self._service = client.service("Model")
        self._operations = operations
        self._parent = client.settings.parent
        self._say = say

    def versions(self, name: str) -> list[Any]:
        """All versions of a model, the newest first; none if there is no model."""
        if not self._look(name):
            return []
        ask, resource = self._service.list_model_versions, self._resource(name)
        found = self._client.listed(ask, name=resource)
        return sorted(found, key=lambda each: int(each.version_id), reverse=True)

    def made_here(self) -> list[Any]:
        """The models that this program has made, one version of each."""
        return self._client.listed(self._service.list_models, f"labels.{LABEL}:*")

    def upload(self, wanted: Requests) -> str:
        """Uploads a version, unless it is there; returns its number.

        An earlier try is found by the alias, or among the operations that continue.
        """
        check_bucket("--model", wanted.model.path, self._client.settings.region)
        name, resource = wanted.name, self._resource(wanted.name)
        self._operations.wait_for_others(resource, name)
        if found := self._look(name, wanted.alias):
            self._say(f"model {name}, version {found.version_id}, has {wanted.model.path}")
        else:
            stage(wanted.model, wanted.artifact)
            what = f"uploading {wanted.model.path} as model {name}"
            self._say(f"{what}; keeping it costs nothing but its storage")
            self._operations.run(
                resource,
                what,
                lambda: bool(self._look(name, wanted.alias)),
                self._service.upload_model,
                parent=self._parent,
                model=self._client.message("Model", wanted.version()),
                **({"parent_model": resource} if self._look(name) else {"model_id": name}),
            )
            found = self._look(name, wanted.alias)
        self._add_aliases(found, wanted)
        return str(found.version_id)

    def _add_aliases(self, found: Any, wanted: Requests) -> None:
        missing = [each for each in wanted.aliases if each not in found.version_aliases]
        if missing:
            called = f"is called {', '.join(missing)} from now on"
            self._say(f"model {wanted.name}, version {found.version_id}, {called}")
            place = f"{self._resource(wanted.name)}@{found.version_id}"
            merge = self._service.merge_version_aliases
            self._client.call(merge, name=place, version_aliases=missing)

    def _look(self, name: str, version: str = "") -> Any:
        """A model, by default its default version; None if there is none."""
        suffix = f"@{version}" if version else ""
        return self._client.look(self._service.get_model, name=f"{self._resource(name)}{suffix}")

    def _resource(self, name: str) -> str:
        return f"{self._parent}/models/{name}"


def stage(model: ServedModel, artifact: str) -> None:
    """Copies a version, within Google Cloud Storage, to where it is uploaded from.

    Its own directory holds other versions too, and TensorFlow Serving would serve the newest.
    """
    target = posixpath.join(artifact, str(model.version))
    there = model_files.files(target)
    if digest_of(there) == model.digest:
        return
    source = model_files.files(model.path)
    # Without its graph a directory is no model, so the graph comes last.
    for name in sorted(source, key=lambda name: (name == GRAPH_FILE, name)):
        if there.get(name) != source[name]:
            _copy(posixpath.join(model.path, name), posixpath.join(target, name))
    if digest_of(model_files.files(target)) != model.digest:
        raise RunError(
            f"--model={model.path} has changed while it was copied to {target}; give the same "
            "command again once it does not change any more"
        )


def _copy(source: str, target: str) -> None:
    bucket, name = bucket_and_name(source)
    target_bucket, target_name = bucket_and_name(target)
    try:
        client = objects.client()
        read = client.bucket(bucket).blob(name)
        written = client.bucket(target_bucket).blob(target_name)
        token: Any = None
        while True:  # a large object between places takes several requests
            token, _, _ = written.rewrite(
                read, token=token, timeout=objects.TIMEOUT, retry=objects.retrying()
            )
            if token is None:
                return
    except exceptions.NotFound:
        raise RunError(f"{source} has vanished while it was copied; name another version") from None
    except objects.FAILURES as error:
        raise objects.explain(error, f"{target} (the copy that is uploaded)") from None


class Endpoints:
    def __init__(self, client: Client, operations: Operations):
        self._client = client
        self._service = client.service("Endpoint")
        self._operations = operations
        self._parent = client.settings.parent

    def look(self, name: str) -> Endpoint | None:
        """An endpoint by its id, or by its display name; None if there is none."""
        resource = f"{self._parent}/endpoints/{name}"
        if found := self._client.look(self._service.get_endpoint, name=resource):
            return found
        same = self._all(f'display_name="{name}"')
        if len(same) > 1:
            ids = ", ".join(each.name.rpartition("/")[2] for each in same)
            raise UserError(f"several endpoints are called {name}; name one by its id: {ids}")
        return same[0] if same else None

    def get(self, name: str) -> Endpoint:
        """An endpoint by its id, or by its display name."""
        if found := self.look(name):
            return found
        titles = sorted(each.display_name for each in self._all(""))
        there = f"there are {', '.join(titles)}" if titles else "there is none at all"
        raise UserError(f"there is no endpoint {name} in {self._parent}; {there}")

    def quiet(self, name: str) -> Endpoint:
        """An endpoint once nothing is under way there."""
        endpoint = self.get(name)
        self._operations.wait_for_others(endpoint.name, endpoint.display_name)
        return self.get(name)

    def made_here(self) -> list[Endpoint]:
        return self._all(f"labels.{LABEL}:*")

    def make(self, name: str, body: Mapping[str, Any]) -> None:
        """Makes an endpoint, unless it is there."""
        resource = f"{self._parent}/endpoints/{name}"
        self._operations.wait_for_others(resource, name)
        if not self.look(name):
            self._operations.run(
                resource,
                f"making the endpoint {name}",
                lambda: bool(self.look(name)),
                self._service.create_endpoint,
                parent=self._parent,
                endpoint_id=name,
                endpoint=self._client.message("Endpoint", body),
            )

    def set_traffic(self, endpoint: Endpoint, split: Mapping[str, int]) -> Endpoint:
        """Divides the traffic into percents by deployed model, whatever others change meanwhile."""
        wanted = without_zeros(split)

        def find() -> Endpoint | None:
            now = self._now(endpoint)
            return now if without_zeros(now.traffic_split) == wanted else None

        for _ in range(_MOST_TRIES):
            if found := find():
                return found
            body = {"name": endpoint.name, "etag": self._now(endpoint).etag, "trafficSplit": wanted}
            changed = self._client.message("Endpoint", body)
            mask = {"paths": ["traffic_split"]}
            change = self._service.update_endpoint
            try:
                self._client.call(change, find, endpoint=changed, update_mask=mask)
            except RefusedError as refusal:
                if refusal.status != _CONFLICT:
                    raise
        if found := find():
            return found
        raise RunError(f"{endpoint.name} is changed by others all the time; try again later")

    def deploy(
        self, endpoint: Endpoint, wanted: DeployedModel, split: Mapping[str, int], what: str
    ) -> None:
        """Deploys a model to an endpoint, once, under the id that it has."""
        self._run(
            endpoint,
            what,
            lambda now: wanted.id in deployed_models(now),
            self._service.deploy_model,
            deployed_model=wanted,
            traffic_split=without_zeros(split),
        )

    def scale(self, endpoint: Endpoint, wanted: DeployedModel, what: str) -> None:
        """Gives what is deployed under an id the number of machines that is wanted there."""
        least, most = replicas(wanted)
        resources = {"minReplicaCount": least, "maxReplicaCount": most}
        changed = {"id": wanted.id, "dedicatedResources": resources}
        fields = ("min_replica_count", "max_replica_count")
        self._run(
            endpoint,
            what,
            lambda now: replicas(deployed_models(now).get(wanted.id)) == replicas(wanted),
            self._service.mutate_deployed_model,
            deployed_model=self._client.message("DeployedModel", changed),
            update_mask={"paths": [f"dedicated_resources.{field}" for field in fields]},
        )

    def undeploy(
        self, endpoint: Endpoint, deployed: str, split: Mapping[str, int], what: str
    ) -> None:
        """Takes a deployed model away; the others get a split of the traffic."""
        self._run(
            endpoint,
            what,
            lambda now: deployed not in deployed_models(now),
            self._service.undeploy_model,
            deployed_model_id=deployed,
            traffic_split=without_zeros(split),
        )

    def delete(self, endpoint: Endpoint) -> None:
        """Deletes an endpoint to which nothing is deployed."""
        name = endpoint.name
        self._operations.run(
            name,
            f"deleting {name}",
            lambda: not self._client.look(self._service.get_endpoint, name=name),
            self._service.delete_endpoint,
            name=name,
        )

    def _run(
        self,
        endpoint: Endpoint,
        what: str,
        is_done: Callable[[Endpoint], bool],
        method: Callable[..., Any],
        **request: Any,
    ) -> None:
        self._operations.run(
            endpoint.name,
            what,
            lambda: is_done(self._now(endpoint)),
            method,
            endpoint=endpoint.name,
            **request,
        )

    def _now(self, endpoint: Endpoint) -> Endpoint:
        return self._client.call(self._service.get_endpoint, name=endpoint.name)

    def _all(self, wanted: str) -> list[Endpoint]:
        return self._client.listed(self._service.list_endpoints, wanted)


def deployed_models(endpoint: Endpoint) -> dict[str, DeployedModel]:
    return {each.id: each for each in endpoint.deployed_models}


def split_of(endpoint: Endpoint) -> dict[str, int]:
    """The traffic of all that is deployed to an endpoint, zeros included."""
    return {name: endpoint.traffic_split.get(name, 0) for name in deployed_models(endpoint)}


def replicas(deployed: DeployedModel | None) -> tuple[int, int]:
    """The least and the greatest number of a deployed model's machines."""
    found = deployed.dedicated_resources if deployed else None
    return (found.min_replica_count, found.max_replica_count) if found else (0, 0)


def title(deployed: DeployedModel) -> str:
    """A deployed model for people."""
    model = deployed.model.rpartition("/")[2].partition("@")[0]
    return f"{deployed.display_name or model} ({deployed.id})"


def traffic_shown(endpoint: Endpoint) -> str:
    """The traffic of an endpoint for people."""
    shares = split_of(endpoint)
    served = deployed_models(endpoint)
    texts = [f"{share} % {title(served[name])}" for name, share in shares.items() if share]
    return ", ".join(texts) or "none"
