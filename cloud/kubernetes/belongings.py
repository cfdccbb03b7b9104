"""What a job on Kubernetes has beside itself, and is deleted with it."""

from typing import Any

from cloud.kubernetes import config_map
from cloud.kubernetes.cluster import KubernetesCluster, RefusedError

POLICY, CONFIG_MAP = "NetworkPolicy", "ConfigMap"


class Belongings:
    """The NetworkPolicies and ConfigMaps of a namespace."""

    def __init__(self, cluster: KubernetesCluster):
        self._cluster = cluster
        self._apis = {
            POLICY: (cluster.networking, "network_policy"),
            CONFIG_MAP: (cluster.core, "config_map"),
        }

    @staticmethod
    def names(job: str) -> list[tuple[str, str]]:
        """Kind and name of all that a job may have."""
        return [(POLICY, job), (CONFIG_MAP, config_map.name(job))]

    def create(self, document: dict[str, Any]) -> None:
        """Makes one."""
        kind, name = document["kind"], document["metadata"]["name"]
        self._call("create", kind, name, self._cluster.namespace, document)

    def read(self, kind: str, name: str) -> dict[str, Any]:
        """What the cluster says of one."""
        found = self._call("read", kind, name, name, self._cluster.namespace)
        plain: dict[str, Any] = self._cluster.plain(found)
        return plain

    def tie(self, kind: str, name: str, owner: dict[str, Any]) -> None:
        """Has Kubernetes delete one with its owner."""
        patch = {"metadata": {"ownerReferences": [owner]}}
        self._call("patch", kind, name, name, self._cluster.namespace, patch)

    def delete(self, kind: str, name: str) -> bool:
        """Deletes one; returns whether there was one."""
        try:
            self._call("delete", kind, name, name, self._cluster.namespace)
        except RefusedError as error:
            # Who has no right to ConfigMaps has made none.
            if error.status != 404 and (kind, error.status) != (CONFIG_MAP, 403):
                raise
            return False
        return True

    def _call(self, verb: str, kind: str, name: str, *arguments: Any) -> Any:
        api, noun = self._apis[kind]
        method = getattr(api, f"{verb}_namespaced_{noun}")
        said = "tie" if verb == "patch" else verb
        what = f"{said} the {kind} {name}" + (" to its job" if verb == "patch" else "")
        return self._cluster.call(what, lambda limit: method(*arguments, _request_timeout=limit))
