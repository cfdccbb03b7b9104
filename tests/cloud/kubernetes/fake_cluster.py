"""A Kubernetes API server as far as kubectl needs it here, over HTTPS, in this process.

It checks what it is sent by the published schemas, and keeps, lists, applies, patches and
deletes objects. There is no controller: a test says what a job's status and pods are.
"""

import copy
import functools
import http.server
import json
import os
import pathlib
import re
import ssl
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import pytest
import yaml

from tests.cloud.kubernetes import schemas
from tests.local_cloud.certificates import HOSTS, write_certificates

# By group and version: kinds and their plurals.
_KINDS = {
    "v1": {"ConfigMap": "configmaps", "Pod": "pods", "Service": "services"},
    "apps/v1": {"Deployment": "deployments", "ReplicaSet": "replicasets"},
    "autoscaling/v2": {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
    "jobset.x-k8s.io/v1alpha2": {"JobSet": "jobsets"},
    "kubeflow.org/v1": {"TFJob": "tfjobs"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    "trainer.kubeflow.org/v1alpha1": {
        "TrainJob": "trainjobs",
        "TrainingRuntime": "trainingruntimes",
    },
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
}
_VERBS = ["create", "delete", "get", "list", "patch", "watch"]
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


class FakeCluster:
    """The server, in one namespace; a context manager.

    Attributes:
        namespace: The only one.
        requests: Method and path of every request about objects so far.
        objects: What was made, by path.
        pods: As the API gives them.
        logs: By pod, and whether of the container before: lines with their times.
        on_read: Called with an object before it is read, to change it.
        faults: Answers to coming requests, in their order: whether the request is carried out all
            the same, and the status.
        absent: Plurals of kinds that are not installed.
        on_pods: Called before pods are listed.
    """

    def __init__(self, namespace: str = "research"):
        self.namespace = namespace
        self.requests: list[str] = []
        self.objects: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.logs: dict[tuple[str, bool], list[str]] = {}
        self.on_read: Callable[[dict[str, Any]], None] = lambda job: None
        self.faults: list[tuple[bool, int]] = []
        self.absent: set[str] = set()
        self.on_pods: Callable[[], None] = lambda: None
        self._made = 0
        self._is_closed = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def install(self, directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has kubectl, the one of this environment, reach this cluster by its context lab."""
        write_certificates(directory)
        self._server.tls.load_cert_chain(directory / "server.pem")
        address = f"https://127.0.0.1:{self._server.server_address[1]}"
        cluster = {"server": address, "certificate-authority": str(directory / "ca.pem")}
        context = {"cluster": "here", "user": "me", "namespace": self.namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": context}],
            "clusters": [{"name": "here", "cluster": {**cluster, "tls-server-name": HOSTS[0]}}],
            "users": [{"name": "me", "user": {"token": "secret"}}],
        }
        (directory / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(directory / "kubeconfig"))
        monkeypatch.setenv("KUBECACHEDIR", str(directory / "cache"))
        monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)

    def kinds(self) -> list[str]:
        """The kinds of what there is, in the order in which it was made."""
        return [each["kind"] for each in self.objects.values()]

    def collection(self, kind: str) -> str:
        """The path of all objects of a kind."""
        [(version, plural)] = [
            (version, kinds[kind]) for version, kinds in _KINDS.items() if kind in kinds
        ]
        return f"/{_root(version)}/namespaces/{self.namespace}/{plural}"

    def discover(self, path: str) -> Any:
        """What kubectl asks before all else; None for other paths."""
        versions = {version: self._resources(version) for version in _KINDS}
        documents = {_root(version): _openapi(version) for version in _KINDS}
        path = path.partition("?")[0].strip("/")
        if path == "api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "apis":
            return {"kind": "APIGroupList", "groups": [_group(x) for x in _KINDS if "/" in x]}
        if path == "openapi/v3":
            paths = {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in documents}
            return {"paths": paths}
        if path.startswith("openapi/v3/"):
            return documents[path.removeprefix("openapi/v3/")]
        return {_root(version): found for version, found in versions.items()}.get(path)

    def _resources(self, version: str) -> dict[str, Any]:
        found = [
            {"name": plural, "kind": kind, "namespaced": True, "singularName": "", "verbs": _VERBS}
            for kind, plural in _KINDS[version].items()
            if plural not in self.absent
        ]
        return {"kind": "APIResourceList", "groupVersion": version, "resources": found}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and content of the answer to one request."""
        self.requests.append(f"{method} {path.partition('?')[0]}")
        fault = self.faults.pop(0) if self.faults else None
        if fault and not fault[0]:
            return fault[1], status(fault[1], "out of order")
        code, content = self._answer(method, path, body)
        return (fault[1], status(fault[1], "lost")) if fault else (code, content)

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        kinds = {self.collection(kind): kind for found in _KINDS.values() for kind in found}
        if match := re.fullmatch(rf"{self.collection('Pod')}/([^/]+)/log", path):
            return self._log(match[1], asked)
        collection, _, name = path.rpartition("/")
        if name in self.absent:
            return 404, status(404, "the server could not find the requested resource")
        if path in kinds:
            if method == "POST":
                return self._create(path, json.loads(body))
            if "sendInitialEvents" in asked:
                return 422, status(422, "sendInitialEvents is forbidden for watch")
            return (200, self._watch()) if "watch" in asked else self._list(path, kinds, asked)
        if collection not in kinds:
            return 403, status(403, f"{path} is forbidden")
        if method == "PATCH" and asked.get("force") == "true":
            return self._apply(path, json.loads(body))
        if kinds[collection] == "Pod":
            found = [each for each in self._pods() if each["metadata"]["name"] == name]
            return (200, found[0]) if found else (404, status(404, f"{name} not found"))
        if path not in self.objects:
            return 404, status(404, f"{name} not found")
        return self._change(method, path, body)

    def _create(self, collection: str, made: dict[str, Any]) -> tuple[int, Any]:
        path = f"{collection}/{made['metadata']['name']}"
        if refused := _refused(json.dumps(made)):
            return 422, status(422, refused)
        if path in self.objects:
            return 409, status(409, f"{path} already exists", "AlreadyExists")
        self._made += 1
        made["metadata"] |= {
            "namespace": self.namespace,
            "uid": f"uid-{self._made}",
            "creationTimestamp": f"2026-11-21T10:00:{self._made:02d}Z",
        }
        self.objects[path] = made
        return 201, copy.deepcopy(made)

    def _apply(self, path: str, wanted: dict[str, Any]) -> tuple[int, Any]:
        """Server-side apply, where no other manager has set a field: what is not named is gone."""
        if path not in self.objects:
            if wanted["kind"] == "Deployment":
                wanted["spec"].setdefault("replicas", 1)
            code, made = self._create(path.rpartition("/")[0], wanted)
            self.objects.get(path, {}).get("metadata", {})["generation"] = 1
            return code, made
        if refused := _refused(json.dumps(wanted)):
            return 422, status(422, refused)
        found = self.objects[path]
        if found.get("immutable") and found["data"] != wanted["data"]:
            return 422, status(422, f"{path} is immutable")
        if found["kind"] == "Deployment":
            wanted["spec"].setdefault("replicas", 1)
            if wanted["spec"]["selector"] != found["spec"]["selector"]:
                return 422, status(422, "field is immutable")
        metadata = {**found["metadata"], **wanted.pop("metadata")}
        for name in ("labels", "annotations"):  # others' keys stay
            metadata[name] = {**found["metadata"].get(name, {}), **metadata.get(name, {})}
        if wanted.get("spec") != found.get("spec"):
            metadata["generation"] = found["metadata"].get("generation", 0) + 1
        found |= {**wanted, "metadata": metadata}
        return 200, copy.deepcopy(found)

    def _list(
        self, collection: str, kinds: Mapping[str, str], asked: dict[str, str]
    ) -> tuple[int, Any]:
        kind = kinds[collection]
        if kind == "Pod":
            self.on_pods()
        here = [each for path, each in self.objects.items() if path.startswith(collection + "/")]
        found = _selected(self._pods() if kind == "Pod" else here, asked)
        [version] = [version for version, kinds in _KINDS.items() if kind in kinds]
        about = {"kind": f"{kind}List", "apiVersion": version, "metadata": {"resourceVersion": "1"}}
        return 200, {**about, "items": copy.deepcopy(found)}

    def _pods(self) -> list[dict[str, Any]]:
        own = {"namespace": self.namespace}
        return [
            {"apiVersion": "v1", "kind": "Pod", **each, "metadata": {**each["metadata"], **own}}
            for each in self.pods
        ]

    def _watch(self) -> Iterator[Any]:
        """Events of a watch that sees none until the cluster ends."""
        self._is_closed.wait()
        yield from ()

    def _change(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        found = self.objects[path]
        if method == "GET":
            self.on_read(found)
        elif method == "PATCH":
            found["metadata"] |= json.loads(body)["metadata"]
        elif method == "DELETE":
            del self.objects[path]
            uid = found["metadata"]["uid"]
            for other, each in list(self.objects.items()):
                owners = each["metadata"].get("ownerReferences", ())
                if uid in [owner["uid"] for owner in owners]:
                    del self.objects[other]
        return 200, copy.deepcopy(found)

    def _log(self, pod: str, asked: dict[str, str]) -> tuple[int, Any]:
        containers = [
            container["name"]
            for each in self.pods
            if each["metadata"]["name"] == pod
            for container in each["spec"]["containers"]
        ]
        if asked.get("timestamps") != "true":
            return 422, status(422, f"unexpected query {asked}")
        if asked.get("container") not in containers:
            return 400, status(400, f"container {asked.get('container')} is not valid for {pod}")
        lines = self.logs.get((pod, asked.get("previous") == "true"))
        if lines is None:
            return 400, status(400, "the container is waiting to start")
        return 200, "".join(f"{line}\n" for line in lines)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _root(version: str) -> str:
    return f"apis/{version}" if "/" in version else f"api/{version}"


def _group(version: str) -> dict[str, Any]:
    name, _, number = version.partition("/")
    preferred = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [preferred], "preferredVersion": preferred}


def _openapi(version: str) -> dict[str, Any]:
    """That the server checks the fields of every kind, which kubectl else does itself."""
    group, _, number = version.rpartition("/")
    parameters = [{"name": "fieldValidation", "in": "query"}]
    paths = {
        f"/{kind}": {
            "patch": {
                "parameters": parameters,
                "x-kubernetes-group-version-kind": {
                    "group": group,
                    "kind": kind,
                    "version": number,
                },
            }
        }
        for kind in _KINDS[version]
    }
    return {"openapi": "3.0.0", "paths": paths}


@functools.cache  # it takes a tenth of a second
def _refused(document: str) -> str:
    """What the schemas have against an object; empty if nothing."""
    try:
        schemas.check(json.loads(document))
    except Exception as error:
        return str(error)
    return ""


def _selected(objects: list[dict[str, Any]], asked: dict[str, str]) -> list[dict[str, Any]]:
    """Those that have all labels of a selector, and the name of one."""
    selector = [part.partition("=") for part in asked.get("labelSelector", "").split(",") if part]
    wanted = {key: value for key, _, value in selector}.items()
    name = asked.get("fieldSelector", "").removeprefix("metadata.name=")
    return [
        each
        for each in objects
        if wanted <= each["metadata"].get("labels", {}).items()
        and name in ("", each["metadata"]["name"])
    ]


def status(code: int, message: str, reason: str = "") -> dict[str, Any]:
    """What the API answers in place of an object."""
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "message": message,
        "reason": reason or _REASONS[code],
    }


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def handle_error(self, *request: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # kubectl may end without a goodbye
            super().handle_error(*request)


def _handler(cluster: FakeCluster) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer in one piece, for which the client does not wait

        def setup(self) -> None:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != "Bearer secret":
                code, content = 401, status(401, "Unauthorized")
            elif found := cluster.discover(self.path):
                code, content = 200, found
            else:
                code, content = cluster.answer(self.command, self.path, body)
            if isinstance(content, Iterator):
                self._stream(content)
                return
            is_text = isinstance(content, str)
            data = content.encode() if is_text else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(data)))
            if code == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, events: Iterator[Any]) -> None:
            """Sends events as they come, and ends the connection."""
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.flush()
            for event in events:
                self.wfile.write(json.dumps(event).encode())

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class's names

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler
