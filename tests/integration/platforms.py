"""What a platform makes of a request: each replica's command and environment, as documented."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
_PORT = ":2222"


@dataclasses.dataclass(frozen=True)
class Replica:
    """One process that the platform starts.

    Attributes:
        name: Its task, such as "worker 0".
        argv: The container's command.
        environ: The container's environment.
    """

    name: str
    argv: list[str]
    environ: dict[str, str]


def jobset(manifest: Mapping[str, Any]) -> Iterator[Replica]:
    """A JobSet's: Kubernetes reads labels of the controller and puts $(NAME) in."""
    for role in manifest["spec"]["replicatedJobs"]:
        pod = role["template"]["spec"]["template"]
        for index in range(role["replicas"]):
            labels = {"jobset.sigs.k8s.io/job-index": str(index)}
            yield _container(f"{role['name']} {index}", pod, labels, _POD)


def tfjob(manifest: Mapping[str, Any]) -> Iterator[Replica]:
    """A TFJob's: the operator adds TF_CONFIG, with every type in its cluster."""
    name = manifest["metadata"]["name"]
    roles = manifest["spec"]["tfReplicaSpecs"]
    cluster = {
        kind.lower(): [
            f"{name}-{kind.lower()}-{i}.default.svc{_PORT}" for i in range(role["replicas"])
        ]
        for kind, role in roles.items()
    }
    for kind, role in roles.items():
        for index in range(role["replicas"]):
            task = {"type": kind.lower(), "index": index}
            config = {"cluster": cluster, "task": task, "environment": "cloud"}
            own = {**_POD, "TF_CONFIG": json.dumps(config)}
            yield _container(f"{kind.lower()} {index}", role["template"], {}, own)


def _container(
    name: str, pod: Mapping[str, Any], labels: Mapping[str, str], environ: Mapping[str, str]
) -> Replica:
    (container,) = pod["spec"]["containers"]
    found = dict(environ)
    for each in container["env"]:
        if "value" in each:
            found[each["name"]] = _expanded(each["value"], found)
        else:
            path = each["valueFrom"]["fieldRef"]["fieldPath"]
            label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
            assert label is not None
            found[each["name"]] = labels[label[1]]
    argv = [*container["command"], *container["args"]]
    return Replica(name, [_expanded(text, found) for text in argv], found)


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    """Text with $(NAME) replaced and $$ read as $, as Kubernetes does it."""
    return re.sub(
        r"\$(\$|\((\w+)\))",
        lambda found: "$" if found[1] == "$" else environ.get(found[2], found[0]),
        text,
    )
