"""Endpoints on Vertex AI, and what is deployed to them."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from cloud.remote_target import Patience
from cloud.vertex.rest import RefusedError, Rest
from cloud.vertex.serving import traffic
from cloud.vertex.serving.request_bodies import LABEL, scale_body, undeploy_body, without_zeros
from tfps.errors import RunError, UserError

_SECONDS_BETWEEN_LINES = 60.0
_GONE = 404
_MOST_TRIES = 5
_MISSING, _CONFLICT = 404, 409
_IDS = (10**9, 10**10 - 1)  # of deployed models: ten digits
_RANDOM = random.SystemRandom()
Endpoint = dict[str, Any]


class OperationFailedError(RunError):
    """An operation that Vertex AI has ended without its effect."""


class Operations:
    """The operations of a region."""

    def __init__(self, rest: Rest, url: str, patience: Patience, say: Callable[[str], None]):
        self._rest = rest
        self._url = url
        self._patience = patience
        self._say = say

    def running(self, resource: str) -> list[dict[str, Any]]:
        """The operations on a resource that have not ended."""
        address, query = f"{self._url}/{resource}/operations", {"pageSize": "100"}
        try:
            found = list(self._rest.listed(address, "operations", query))
        except RefusedError as error:
            if error.status != _GONE:
                raise
            return []
        return [each for each in found if not each.get("done")]

    def wait_for_others(self, resource: str, what: str) -> None:
        """Waits until none is running on a resource, however they end."""
        for operation in self.running(resource):
            try:
                self.wait(operation, f"{what}: an operation that an earlier command has begun")
            except OperationFailedError as error:
                self._say(str(error))

    def wait(self, operation: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Follows an operation to its end.

        Args:
            operation: What a request has been answered with; one that has ended is not looked at
                again.
        """
        name = str(operation.get("name", ""))
        begin = told = time.monotonic()
        try:
            while not operation.get("done"):
                now = time.monotonic()
                if now - begin >= self._patience.limit_seconds:
                    raise RunError(
                        f"{what}: not done after {self._patience.limit_seconds:g} s "
                        f"(--wait_seconds); {_goes_on(name)}"
                    )
                if now - told >= _SECONDS_BETWEEN_LINES:
                    told = now
                    self._say(f"{what}: {now - begin:.0f} s")
                time.sleep(self._patience.poll_seconds)
                operation = self._rest.get(f"{self._url}/{name}")
        except KeyboardInterrupt:
            self._say(f"{what}: interrupted; {_goes_on(name)}")
            raise
        if error := operation.get("error"):
            text = " ".join(str(error.get("message", "")).split()) or f"code {error.get('code')}"
            raise OperationFailedError(f"{what}: {text}")
        return dict(operation.get("response", {}))


def _goes_on(name: str) -> str:
    return f"{name} goes on; the same command waits for it again"


class Endpoints:
    """The endpoints of a region."""

    def __init__(self, rest: Rest, operations: Operations, url: str, parent: str):
        self._rest = rest
        self._operations = operations
        self._url = url
        self._address = f"{url}/{parent}/endpoints"
        self._parent = parent

    def look(self, name: str) -> Endpoint | None:
        """An endpoint by its id, or by its display name; None if there is none."""
        if found := self._rest.look(f"{self._address}/{name}"):
            return found
        same = self._all(f'display_name="{name}"')
        if len(same) > 1:
            ids = ", ".join(str(each["name"]).rpartition("/")[2] for each in same)
            raise UserError(f"several endpoints are called {name}; name one by its id: {ids}")
        return same[0] if same else None

    def get(self, name: str) -> Endpoint:
        """An endpoint by its id, or by its display name."""
        if found := self.look(name):
            return found
        titles = sorted(str(each.get("displayName", "")) for each in self._all(""))
        there = f"there are {', '.join(titles)}" if titles else "there is none at all"
        raise UserError(f"there is no endpoint {name} in {self._parent}; {there}")

    def made_here(self) -> list[Endpoint]:
        """Those that this program has made."""
        return self._all(f"labels.{LABEL}:*")

    def make(self, name: str, body: Mapping[str, Any]) -> Endpoint:
        """Makes an endpoint, unless it is there."""
        resource = f"{self._parent}/endpoints/{name}"
        self._operations.wait_for_others(resource, name)
        if found := self.look(name):
            return found

        def find() -> Endpoint | None:
            if self._rest.look(f"{self._url}/{resource}"):
                return {"done": True}
            return next(iter(self._operations.running(resource)), None)

        try:
            operation = self._rest.create(f"{self._address}?endpointId={name}", body, find)
        except RefusedError as error:
            if error.status != _CONFLICT:
                raise
            operation = {"done": True}  # somebody has made it meanwhile
        self._operations.wait(operation, f"making the endpoint {name}")
        return self.get(name)

    def set_traffic(self, endpoint: Endpoint, split: Mapping[str, int]) -> Endpoint:
        """Divides an endpoint's traffic, whatever others change at the same time.

        Args:
            split: Percents by the ids of deployed models; who is not in it gets nothing.
        """
        assert traffic.is_split(split), split
        wanted = {"trafficSplit": without_zeros(split)}
        address = f"{self._url}/{endpoint['name']}"
        for _ in range(_MOST_TRIES):
            now = self._rest.get(address)
            if _has(now, wanted):
                return now
            body = {**wanted, "etag": now["etag"]} if now.get("etag") else wanted

            def find() -> Endpoint | None:
                changed = self._rest.get(address)
                return changed if _has(changed, wanted) else None

            try:
                self._rest.change(f"{address}?updateMask=trafficSplit", body, find)
            except RefusedError as error:
                if error.status != _CONFLICT:
                    raise
        now = self._rest.get(address)
        if _has(now, wanted):
            return now
        raise RunError(f"{endpoint['name']} is changed by others all the time; try again later")

    def deploy(self, endpoint: Endpoint, body: Mapping[str, Any], deployed: str, what: str) -> None:
        """Deploys a model to an endpoint, once."""
        named = {**body, "deployedModel": {"id": deployed, **body["deployedModel"]}}
        self._run(
            endpoint, "deployModel", named, lambda now: deployed in deployed_models(now), what
        )

    def scale(
        self, endpoint: Endpoint, deployed: str, replicas: Mapping[str, int], what: str
    ) -> None:
        """Changes how many machines a deployed model has."""

        def is_done(now: Endpoint) -> bool:
            resources = deployed_models(now).get(deployed, {}).get("dedicatedResources", {})
            return all(resources.get(name) == count for name, count in replicas.items())

        self._run(endpoint, "mutateDeployedModel", scale_body(deployed, replicas), is_done, what)

    def undeploy(self, endpoint: Endpoint, deployed: str, what: str) -> None:
        """Takes a deployed model away, its traffic to the others, unless it is gone."""
        now = self._rest.get(f"{self._url}/{endpoint['name']}")
        if deployed not in deployed_models(now):
            return
        split = traffic.left(split_of(now), deployed)
        self._run(
            endpoint,
            "undeployModel",
            undeploy_body(deployed, split),
            lambda now: deployed not in deployed_models(now),
            what,
        )

    def delete(self, endpoint: Endpoint) -> None:
        """Deletes an endpoint to which nothing is deployed."""
        name = str(endpoint["name"])
        address = f"{self._url}/{name}"

        def find() -> Endpoint | None:
            if not self._rest.look(address):
                return {"done": True}
            return next(iter(self._operations.running(name)), None)

        try:
            operation = self._rest.delete(address, find)
        except RefusedError as error:
            if error.status != _MISSING:
                raise
            return
        self._operations.wait(operation, f"deleting {name}")

    def _run(
        self,
        endpoint: Endpoint,
        verb: str,
        body: Mapping[str, Any],
        is_done: Callable[[Endpoint], bool],
        what: str,
    ) -> None:
        """Runs an operation on an endpoint, once, to its end."""
        name = str(endpoint["name"])
        address = f"{self._url}/{name}"

        def find() -> Endpoint | None:
            if is_done(self._rest.get(address)):
                return {"done": True}
            return next(iter(self._operations.running(name)), None)

        for _ in range(_MOST_TRIES):
            self._operations.wait(self._rest.create(f"{address}:{verb}", body, find), what)
            if is_done(self._rest.get(address)):
                return  # else it was another operation that `find` has found
        raise RunError(f"{what}: others change {name} all the time; try again later")

    def _all(self, wanted: str) -> list[Endpoint]:
        query = {"pageSize": "100"} | ({"filter": wanted} if wanted else {})
        return list(self._rest.listed(self._address, "endpoints", query))


def new_id() -> str:
    """An id for a deployed model, which nobody else has chosen."""
    return str(_RANDOM.randint(*_IDS))


def deployed_models(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """What is deployed to an endpoint, by id."""
    return {str(each["id"]): each for each in endpoint.get("deployedModels", ())}


def split_of(endpoint: Endpoint) -> traffic.Split:
    """The traffic of all that is deployed to an endpoint, zeros included."""
    split = endpoint.get("trafficSplit", {})
    return {name: int(split.get(name, 0)) for name in deployed_models(endpoint)}


def title(deployed: Mapping[str, Any]) -> str:
    """A deployed model for people."""
    model = str(deployed.get("model", "")).rpartition("/")[2].partition("@")[0]
    return f"{deployed.get('displayName') or model} ({deployed.get('id')})"


def _has(now: Endpoint, wanted: Endpoint) -> bool:
    """Whether an endpoint's fields are as they should be."""
    return all(_plain(now.get(name, {})) == _plain(value) for name, value in wanted.items())


def _plain(value: Any) -> Any:
    """A field without what says as much as nothing: traffic of zero percent."""
    return {key: each for key, each in value.items() if each != 0}
