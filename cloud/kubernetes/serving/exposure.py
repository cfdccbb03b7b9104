"""Where the servers of a deployment are reached, and by whom."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from cloud import command_line
from cloud.deployment.deployment import Deployment
from cloud.kubernetes.serving import names
from tfps.errors import UserError

_KEY = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_PORTS = {"grpc": names.GRPC_PORT, "rest": names.REST_PORT}


@dataclasses.dataclass(frozen=True)
class Callers:
    """Who may ask the servers; without any, every pod of their own namespace.

    Attributes:
        pods: Labels of pods of their own namespace; a pod with one of them may.
        namespaces: Labels of namespaces; all pods of one with one of them may.
    """

    pods: Mapping[str, str] = dataclasses.field(default_factory=dict)
    namespaces: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, pods: Sequence[str], namespaces: Sequence[str]) -> Self:
        """Reads KEY=value of --allow_from and --allow_namespace."""
        return cls(_labels("--allow_from", pods), _labels("--allow_namespace", namespaces))

    @property
    def peers(self) -> list[dict[str, Any]]:
        """As a NetworkPolicy names them."""
        pods = [{"podSelector": _selector(*each)} for each in self.pods.items()]
        rooms = [{"namespaceSelector": _selector(*each)} for each in self.namespaces.items()]
        return [*pods, *rooms] or [{"podSelector": {}}]


def service(deployment: Deployment) -> dict[str, Any]:
    """Renders the address, within the cluster, of all servers that answer."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(deployment),
        "spec": {
            "type": "ClusterIP",
            "selector": names.selector(deployment.name),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                for name, port in _PORTS.items()
            ],
        },
    }


def network_policy(deployment: Deployment, callers: Callers) -> dict[str, Any]:
    """Lets callers reach the servers' ports, and nobody else reach anything of them.

    TensorFlow Serving asks for no credentials. The cluster's network plugin must enforce policies.
    """
    ports = [{"protocol": "TCP", "port": port} for port in _PORTS.values()]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names.metadata(deployment),
        "spec": {
            "podSelector": {"matchLabels": names.selector(deployment.name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": callers.peers, "ports": ports}],
        },
    }


def _selector(key: str, value: str) -> dict[str, Any]:
    return {"matchLabels": {key: value}}


def _labels(flag: str, texts: Sequence[str]) -> dict[str, str]:
    found = command_line.pairs(flag, texts)
    for key, value in found.items():
        if not re.fullmatch(_KEY, key) or not re.fullmatch(_VALUE, value):
            raise UserError(
                f"{flag}={key}={value}: write a label of Kubernetes, as in app=frontend"
            )
    return found
