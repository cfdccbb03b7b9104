"""Versions of models on Vertex AI: each is uploaded once."""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from google.api_core import exceptions

from cloud.deployment import model_files
from cloud.deployment.served_model import ServedModel, digest_of
from cloud.vertex.rest import RefusedError, Rest
from cloud.vertex.serving.endpoints import Operations
from cloud.vertex.serving.request_bodies import LABEL, ModelVersion
from tfps.errors import RunError
from tfps.export.exported_files import GRAPH_FILE
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name

_MOST_TRIES = 3
_EXISTS = 409


def stage(model: ServedModel, artifact: str) -> None:
    """Copies a version to where it is uploaded from, unless it is there.

    Args:
        artifact: Directory in which it is to be the only one; see `Requests.version`.
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
    copied = model_files.files(target)
    if digest_of(copied) != model.digest:
        raise RunError(
            f"--model={model.path} has changed while it was copied to {target}; give the same "
            "command again once it does not change any more"
        )


def _copy(source: str, target: str) -> None:
    """Copies an object within Google Cloud Storage."""
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
