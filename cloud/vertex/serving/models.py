"""Versions of models on Vertex AI: each is uploaded once."""

from collections.abc import Callable, Mapping
from typing import Any

from cloud.vertex.rest import RefusedError, Rest
from cloud.vertex.serving.endpoints import Operations
from cloud.vertex.serving.request_bodies import LABEL, ModelVersion
from tfps.errors import RunError

_MOST_TRIES = 3

_EXISTS = 409


class Models:
    """The models of a region."""

    def __init__(
        self,
        rest: Rest,
        operations: Operations,
        url: str,
        parent: str,
        say: Callable[[str], None],
    ):
        self._rest = rest
        self._operations = operations
        self._url = url
        self._parent = parent
        self._say = say

    def resource(self, name: str) -> str:
        """Resource name of the model of a deployment."""
        return f"{self._parent}/models/{name}"

    def look(self, name: str, version: str = "") -> dict[str, Any] | None:
        """A model, by default its default version; None if there is none."""
        suffix = f"@{version}" if version else ""
        return self._rest.look(f"{self._url}/{self.resource(name)}{suffix}")

    def versions(self, name: str) -> list[dict[str, Any]]:
        """All versions of the model of a deployment, the newest first."""
        address = f"{self._url}/{self.resource(name)}:listVersions"
        found = list(self._rest.listed(address, "models"))
        return sorted(found, key=lambda each: int(each.get("versionId", 0)), reverse=True)

    def upload(self, version: ModelVersion) -> dict[str, Any]:
        """Uploads a version, unless it is there.

        A try that seemed to fail is looked for before the next: by the alias, which tells what is
        in the version, and among the operations that go on.
        """
        what = f"uploading {version.source} as model {version.name}"
        for _ in range(_MOST_TRIES):
            if found := self.look(version.name, version.alias):
                self._say(f"{_shown(found, version.name)} has {version.source}")
                return self._named(found, version)
            if self._operations.running(self.resource(version.name)):
                self._operations.wait_for_others(self.resource(version.name), version.name)
                continue
            self._say(f"{what}; keeping it costs nothing but its storage")
            self._operations.wait(self._send(version), what)
        if found := self.look(version.name, version.alias):
            return self._named(found, version)
        raise RunError(
            f"{what}: it is not there, although Vertex AI has not said that it failed; give the "
            "same command again"
        )

    def _named(self, found: dict[str, Any], version: ModelVersion) -> dict[str, Any]:
        """A version that is there, once it has all further aliases that it is to have."""
        missing = [each for each in version.aliases if each not in found.get("versionAliases", ())]
        if not missing:
            return found
        self._say(f"{_shown(found, version.name)} is called {', '.join(missing)} from now on")
        place = f"{self.resource(version.name)}@{found['versionId']}"
        body = {"versionAliases": missing}
        return self._rest.post(f"{self._url}/{place}:mergeVersionAliases", body)

    def _send(self, version: ModelVersion) -> Mapping[str, Any]:
        """Asks for a version; returns an operation, which has ended if there is none to follow."""
        body = version.request()
        if self.look(version.name):
            del body["modelId"]
            body = {"parentModel": self.resource(version.name), **body}

        def find() -> dict[str, Any] | None:
            if self.look(version.name, version.alias):
                return {"done": True}
            return next(iter(self._operations.running(self.resource(version.name))), None)

        try:
            return self._rest.create(f"{self._url}/{self._parent}/models:upload", body, find)
        except RefusedError as error:
            if error.status != _EXISTS:
                raise
            return {"done": True}  # somebody has made the model meanwhile: look again

    def made_here(self) -> list[dict[str, Any]]:
        """The models that this program has made, one version of each."""
        query = {"filter": f"labels.{LABEL}:*", "pageSize": "100"}
        return list(self._rest.listed(f"{self._url}/{self._parent}/models", "models", query))


def _shown(found: Mapping[str, Any], name: str) -> str:
    return f"model {name}, version {found.get('versionId')},"
