"""Makes, changes and ends the servers of deployments in a namespace, and waits for that."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from cloud.kubernetes.objects import KubernetesObjects, selector
from cloud.kubernetes.serving import names
from cloud.kubernetes.serving.revisions import Revision, revisions
from cloud.kubernetes.serving.rollout import Rollout, reasons
from cloud.remote_target import Patience
from tfps.errors import RunError, UserError

_AUTOSCALER = "HorizontalPodAutoscaler"
_OURS = (
    *("Deployment", _AUTOSCALER, "PodDisruptionBudget", "Service"),
    *("NetworkPolicy", "ConfigMap"),
)
_LAST = ("NetworkPolicy", "ConfigMap")  # deleted once no pod needs them any more
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Server:
    """One deployment, in few words."""

    name: str
    created: str
    model: str
    state: str


class Servers:
    """Deployments of one namespace."""

    def __init__(self, objects: KubernetesObjects, patience: Patience, say: Say):
        """Uses a namespace.

        Args:
            patience: How long to wait at most, and how often to look.
        """
        self._objects = objects
        self._patience = patience
        self._say = say

    @property
    def namespace(self) -> str:
        """Where the deployments are."""
        return self._objects.namespace

    def check_free(self, manifests: Sequence[dict[str, Any]]) -> None:
        """Refuses to change what this program has not made."""
        for each in manifests:
            kind, name = each["kind"], each["metadata"]["name"]
            wanted = names.owned(names.deployment_of(each["metadata"]["labels"]))
            found = self._objects.find(kind, name)
            if found and not wanted.items() <= (found["metadata"].get("labels") or {}).items():
                raise UserError(
                    f"there is a {kind} {name} in namespace {self.namespace} already, "
                    "which this program has not made; give another --name"
                )

    def apply(self, manifests: Sequence[dict[str, Any]]) -> None:
        """Makes what a deployment is, or changes it, in the order that is given."""
        name = names.deployment_of(manifests[0]["metadata"]["labels"])
        if not any(each["kind"] == _AUTOSCALER for each in manifests):
            self._delete(_AUTOSCALER, self._objects.list(_AUTOSCALER, names.owned(name)))
        for each in manifests:
            self._objects.apply(self._with_replicas(each, manifests))

    def wait(self, name: str) -> None:
        """Waits until all servers are as they are to be, and answer."""
        try:
            self._watch(name)
        except KeyboardInterrupt:
            self._say(f"{name}: what was asked for goes on; {_mends(name)}")
            raise

    def _watch(self, name: str) -> None:
        deadline = time.monotonic() + self._patience.limit_seconds
        shown: set[str] = set()
        last = ""
        while True:
            rollout = Rollout.of(self._deployment(name))
            if rollout.text != last:
                last = rollout.text
                self._say(f"{name}: {last}")
            if rollout.is_done:
                return
            for reason in reasons(self._objects.list("Pod", names.selector(name))):
                if reason not in shown:
                    shown.add(reason)
                    self._say(f"{name}: {reason}")
            if rollout.failure or time.monotonic() >= deadline:
                limit = f"{last} after {self._patience.limit_seconds:g} s (--wait_seconds)"
                old = "the old servers still answer; " if rollout.old else ""
                raise RunError(
                    f"{name}: {rollout.failure or limit}; {old}look at the new ones with `kubectl "
                    f"logs --selector={selector(names.selector(name))} "
                    f"--namespace={self.namespace}`; {_mends(name)}"
                )
            time.sleep(self._patience.poll_seconds)

    def list(self) -> Sequence[Server]:
        """The deployments that this program has made, the newest first."""
        found = [
            Server(
                names.deployment_of(each["metadata"]["labels"]),
                str(each["metadata"].get("creationTimestamp", "")),
                (each["metadata"].get("annotations") or {}).get(names.MODEL, ""),
                Rollout.of(each).text,
            )
            for each in self._objects.list("Deployment", names.owned())
        ]
        return sorted(found, key=lambda server: server.created, reverse=True)

    def describe(self, name: str) -> Sequence[dict[str, Any]]:
        """All objects of a deployment, without who set which field."""
        self._deployment(name)
        found = [each for kind in _OURS for each in self._objects.list(kind, names.owned(name))]
        for each in found:
            each["metadata"].pop("managedFields", None)
        return found

    def delete(self, name: str) -> None:
        """Deletes a deployment, and waits until none of its servers is left."""
        found = {kind: self._objects.list(kind, names.owned(name)) for kind in _OURS}
        if not any(found.values()):
            raise self._no_such(name)
        for kind in (kind for kind in _OURS if kind not in _LAST):
            self._delete(kind, found[kind])
        deadline = time.monotonic() + self._patience.limit_seconds
        last = -1
        while left := len(self._objects.list("Pod", names.selector(name))):
            if left != last:
                last = left
                self._say(f"{name}: {left} server{'s' * (left > 1)} to end")
            if time.monotonic() >= deadline:
                raise RunError(
                    f"{name}: {left} servers are left after {self._patience.limit_seconds:g} s "
                    "(--wait_seconds); give the command again"
                )
            time.sleep(self._patience.poll_seconds)
        for kind in _LAST:
            self._delete(kind, found[kind])

    def previous(self, name: str) -> tuple[Revision, Revision]:
        """What a deployment is, and what it was before."""
        *_, before, now = [None, None, *self._revisions(name)]
        if now is None or before is None:
            raise UserError(
                f"{name} has no revision to go back to: Kubernetes has kept none before the one "
                "that is there"
            )
        for config in before.config_maps:
            if self._objects.find("ConfigMap", config) is None:
                raise UserError(
                    f"{name} cannot go back to {before.model}: its ConfigMap {config} is gone; "
                    "deploy that version with --model and --version"
                )
        return now, before

    def go_back(self, name: str, revision: Revision) -> None:
        """Makes servers what they were at a revision, with one request.

        It is applied as a deploy is: so the next deploy takes away what this one has set.
        """
        found = self._deployment(name)
        metadata = found["metadata"]
        self._objects.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {
                    "name": metadata["name"],
                    "labels": metadata["labels"],
                    "annotations": names.annotations(revision.model),
                },
                "spec": {**found["spec"], "template": revision.template},
            }
        )

    def prune(self, name: str) -> None:
        """Deletes the ConfigMaps that no revision needs any more."""
        needed = {config for revision in self._revisions(name) for config in revision.config_maps}
        if needed:
            found = self._objects.list("ConfigMap", names.owned(name))
            self._delete("ConfigMap", [x for x in found if x["metadata"]["name"] not in needed])

    def _with_replicas(
        self, manifest: dict[str, Any], manifests: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """A Deployment with so many servers as there are now, where their number changes by itself.

        One without would have one server until the autoscaler looks.
        """
        if manifest["kind"] != "Deployment" or "replicas" in manifest["spec"]:
            return manifest
        [limits] = [x["spec"] for x in manifests if x["kind"] == _AUTOSCALER]
        found = self._objects.find("Deployment", manifest["metadata"]["name"])
        now = found["spec"].get("replicas", 1) if found else 0
        count = min(max(now, limits["minReplicas"]), limits["maxReplicas"])
        return {**manifest, "spec": {"replicas": count, **manifest["spec"]}}

    def _revisions(self, name: str) -> Sequence[Revision]:
        sets = self._objects.list("ReplicaSet", names.selector(name))
        return revisions(self._deployment(name), sets)

    def _delete(self, kind: str, found: Sequence[dict[str, Any]]) -> None:
        for each in found:
            self._objects.delete(kind, each["metadata"]["name"])

    def _deployment(self, name: str) -> dict[str, Any]:
        found = self._objects.find("Deployment", names.object_name(name))
        wanted = names.owned(name).items()
        if not found or not wanted <= (found["metadata"].get("labels") or {}).items():
            raise self._no_such(name)
        return found

    def _no_such(self, name: str) -> UserError:
        return UserError(
            f"there is no deployment {name} in namespace {self.namespace}; "
            "`python -m cloud.deploy list --target=kubernetes …` shows what there is"
        )


def _mends(name: str) -> str:
    return (
        f"deploy again, or go back with `python -m cloud.deploy rollback {name} …`, or end it with "
        f"`python -m cloud.deploy undeploy {name} …`"
    )
