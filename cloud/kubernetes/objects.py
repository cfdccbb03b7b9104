"""Objects of one namespace, made and changed by what they are to be: server-side apply."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from cloud.kubernetes.cluster import KubernetesCluster, RefusedError

# Where each kind is in the API, by its name.
KINDS = {
    "ConfigMap": "api/v1/{}/configmaps",
    "Service": "api/v1/{}/services",
    "Pod": "api/v1/{}/pods",
    "NetworkPolicy": "apis/networking.k8s.io/v1/{}/networkpolicies",
    "Deployment": "apis/apps/v1/{}/deployments",
    "ReplicaSet": "apis/apps/v1/{}/replicasets",
    "PodDisruptionBudget": "apis/policy/v1/{}/poddisruptionbudgets",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2/{}/horizontalpodautoscalers",
}
_MANAGER = "tfps"  # who set a field, as Kubernetes keeps it
_APPLY = "application/apply-patch+yaml"
_TRIES, _PAUSE_SECONDS = 5, 1.0  # when another request has changed an object at the same time
Found = dict[str, Any]


def selector(labels: Mapping[str, str]) -> str:
    """Labels as the API and kubectl take them, for objects that have all of them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


class KubernetesObjects:
    """What is in a namespace, by kind and name.

    All of it may be repeated. Every method raises a `RefusedError` for what the cluster refuses,
    and a `RunError` if it does not answer however often it is asked.
    """

    def __init__(self, cluster: KubernetesCluster):
        self._cluster = cluster

    @property
    def namespace(self) -> str:
        """Where the objects are."""
        return self._cluster.namespace

    def find(self, kind: str, name: str) -> Found | None:
        """One object; None if there is none."""
        try:
            return self._cluster.request(f"read the {kind} {name}", "GET", self._path(kind, name))
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, labels: Mapping[str, str]) -> Sequence[Found]:
        """All objects of a kind that have these labels."""
        query = {"labelSelector": selector(labels)}
        found = self._cluster.request(f"list each {kind}", "GET", self._path(kind), query)
        # In a list they lack what all have in common.
        return [{"kind": kind, **each} for each in found["items"]]

    def apply(self, document: Found) -> Found:
        """Makes an object, or changes one into what it is to be."""
        kind, name = document["kind"], document["metadata"]["name"]
        what, path = f"apply the {kind} {name}", self._path(kind, name)
        query = {"fieldManager": _MANAGER, "force": "true"}
        for left in reversed(range(_TRIES)):
            try:
                return self._cluster.request(what, "PATCH", path, query, document, _APPLY)
            except RefusedError as error:
                if error.status != 409 or not left:
                    raise
            time.sleep(_PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")

    def delete(self, kind: str, name: str) -> bool:
        """Deletes an object, and what Kubernetes has made for it; returns whether there was one."""
        try:
            self._cluster.request(
                f"delete the {kind} {name}",
                "DELETE",
                self._path(kind, name),
                {"propagationPolicy": "Background"},
            )
        except RefusedError as error:
            if error.status != 404:
                raise
            return False
        return True

    def _path(self, kind: str, name: str = "") -> str:
        collection = "/" + KINDS[kind].format(f"namespaces/{self.namespace}")
        return f"{collection}/{name}" if name else collection
