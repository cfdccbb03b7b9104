"""A Kubernetes API server as far as a submitter needs it, over HTTP, in this process.

It checks what it is sent by the published schemas, and keeps, lists, applies, patches and deletes
objects. There is no controller: a test says what a job's status and pods are.
"""

import copy
import functools
import http.server
import json
import pathlib
import re
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any, Self

import yaml

from tests.cloud.kubernetes import schemas

_COLLECTIONS = (
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/services",
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "/apis/kubeflow.org/v1/namespaces/{}/tfjobs",
)


class FakeCluster:
    """The server, in one namespace; a context manager.

    Attributes:
        namespace: The only one.
        requests: Method and path of every request so far.
        objects: What was made, by path.
        pods: As the API gives them.
        logs: By pod, and whether of the container before: lines with their times.
        on_read: Called with an object before it is read, to change it.
        on_pods: Called before pods are listed.
        faults: Answers to coming requests, in their order: whether the request is carried out all
            the same, and the status.
        absent: Plurals of kinds that are not installed.
    """

    def __init__(self, namespace: str = "research"):
        self.namespace = namespace
        self.requests: list[str] = []
        self.objects: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.logs: dict[tuple[str, bool], list[str]] = {}
        self.on_read: Callable[[dict[str, Any]], None] = lambda job: None
        self.on_pods: Callable[[], None] = lambda: None
        self.faults: list[tuple[bool, int]] = []
        self.absent: set[str] = set()
        self._made = 0
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def write_kubeconfig(self, path: pathlib.Path) -> None:
        """Writes a kubeconfig with one context, lab, that leads here."""
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        context = {"cluster": "here", "user": "me", "namespace": self.namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": context}],
            "clusters": [{"name": "here", "cluster": {"server": address}}],
            "users": [{"name": "me", "user": {"token": "secret"}}],
        }
        path.write_text(yaml.safe_dump(config))

    def kinds(self) -> list[str]:
        """The kinds of what there is, in the order in which it was made."""
        return [each["kind"] for each in self.objects.values()]

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and content of the answer to one request."""
        self.requests.append(f"{method} {path.partition('?')[0]}")
        fault = self.faults.pop(0) if self.faults else None
        if fault and not fault[0]:
            return fault[1], _status(fault[1], "out of order")
        status, content = self._answer(method, path, body)
        return (fault[1], _status(fault[1], "lost")) if fault else (status, content)

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        if path == pods:
            self.on_pods()
            found = _selected(self.pods, asked)
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": found}
        if match := re.fullmatch(rf"{pods}/([^/]+)/log", path):
            return self._log(match[1], asked)
        collection, _, name = path.rpartition("/")
        collections = [each.format(self.namespace) for each in _COLLECTIONS]
        if path.rpartition("/")[2] in self.absent:
            return 404, _status(404, "the server could not find the requested resource")
        if path in collections:
            made = method == "POST"
            return self._create(path, json.loads(body)) if made else self._list(path, asked)
        if collection not in collections:
            return 403, _status(403, f"{path} is forbidden")
        if method == "PATCH" and asked.get("force") == "true":
            return self._apply(path, json.loads(body))
        if path not in self.objects:
            return 404, _status(404, f"{name} not found")
        return self._change(method, path, body)

    def _create(self, collection: str, made: dict[str, Any]) -> tuple[int, Any]:
        path = f"{collection}/{made['metadata']['name']}"
        if refused := _refused(json.dumps(made)):
            return 422, _status(422, refused)
        if path in self.objects:
            return 409, _status(409, f"{path} already exists")
        self._made += 1
        made["metadata"] |= {
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
            status, made = self._create(path.rpartition("/")[0], wanted)
            self.objects.get(path, {}).get("metadata", {})["generation"] = 1
            return status, made
        if refused := _refused(json.dumps(wanted)):
            return 422, _status(422, refused)
        found = self.objects[path]
        if found.get("immutable") and found["data"] != wanted["data"]:
            return 422, _status(422, f"{path} is immutable")
        if found["kind"] == "Deployment":
            wanted["spec"].setdefault("replicas", 1)
            if wanted["spec"]["selector"] != found["spec"]["selector"]:
                return 422, _status(422, "field is immutable")
        metadata = {**found["metadata"], **wanted.pop("metadata")}
        for name in ("labels", "annotations"):  # others' keys stay
            metadata[name] = {**found["metadata"].get(name, {}), **metadata.get(name, {})}
        if wanted.get("spec") != found.get("spec"):
            metadata["generation"] = found["metadata"].get("generation", 0) + 1
        found |= {**wanted, "metadata": metadata}
        return 200, copy.deepcopy(found)

    def _list(self, collection: str, asked: dict[str, str]) -> tuple[int, Any]:
        found = [each for path, each in self.objects.items() if path.startswith(collection + "/")]
        return 200, {"items": copy.deepcopy(_selected(found, asked))}

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
        # The client writes True or true, by its version; Kubernetes takes both.
        if (asked.get("container"), asked.get("timestamps", "").lower()) != ("tensorflow", "true"):
            return 422, _status(422, f"unexpected query {asked}")
        lines = self.logs.get((pod, asked.get("previous", "").lower() == "true"))
        if lines is None:
            return 400, _status(400, "the container is waiting to start")
        return 200, "".join(f"{line}\n" for line in lines)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@functools.cache  # it takes a tenth of a second
def _refused(document: str) -> str:
    """What the schemas have against an object; empty if nothing."""
    try:
        schemas.check(json.loads(document))
    except Exception as error:
        return str(error)
    return ""


def _selected(objects: list[dict[str, Any]], asked: dict[str, str]) -> list[dict[str, Any]]:
    """Those that have all labels of a selector."""
    selector = [part.partition("=") for part in asked.get("labelSelector", "").split(",") if part]
    wanted = {key: value for key, _, value in selector}.items()
    return [each for each in objects if wanted <= each["metadata"].get("labels", {}).items()]


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


def _handler(cluster: FakeCluster) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer in one piece, for which the client does not wait

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != "Bearer secret":
                status, content = 401, _status(401, "Unauthorized")
            else:
                status, content = cluster.answer(self.command, self.path, body)
            is_text = isinstance(content, str)
            data = content.encode() if is_text else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class's names

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler
