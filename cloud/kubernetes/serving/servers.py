"""Makes, changes and ends the servers of deployments in a namespace, and waits for that."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cloud.kubernetes.kubectl import Found, Kubectl, RefusedError, documents
from cloud.kubernetes.kubectl import selector as selector_flag
from cloud.kubernetes.serving.manifests import (
    AUTOSCALER,
    MODEL,
    annotations,
    deployment_of,
    object_name,
    owned,
    selector,
)
from cloud.remote_target import Patience
from tfps.errors import RunError, UserError

_AUTOSCALERS = "horizontalpodautoscalers"
_FIRST = f"deployments,{_AUTOSCALERS},poddisruptionbudgets,services"
_LAST = "networkpolicies,configmaps"  # deleted once no pod needs them any more
_REVISION = "deployment.kubernetes.io/revision"
_HASH = "pod-template-hash"  # Kubernetes adds it to the pods of each revision
_DONE = "successfully rolled out"
_LONGEST_REASON = 300


class Revision(NamedTuple):
    """What the servers of a deployment were at a time."""

    number: int  # Kubernetes' own; the servers of today have the largest
    template: Mapping[str, Any]  # of their pods

    @property
    def model(self) -> str:
        """Directory of the version that they serve."""
        return str(self.template["metadata"].get("annotations", {}).get(MODEL, ""))

    @property
    def config_maps(self) -> Iterator[str]:
        """Names of the ConfigMaps that they need."""
        for volume in self.template["spec"].get("volumes", ()):
            if "configMap" in volume:
                yield volume["configMap"]["name"]


class Servers:
    """Deployments of one namespace; `say` shows a line."""

    def __init__(self, kubectl: Kubectl, patience: Patience, say: Callable[[str], None]):
        self._kubectl = kubectl
        self._patience = patience
        self._say = say

    def deploy(self, manifests: Sequence[Found], notice: str) -> str:
        """Makes what a deployment is, or changes it; returns the namespace.

        Waits until all servers are as the manifests say, and answer. Changes nothing that this
        program has not made. Shows the notice before anything is made.
        """
        name = deployment_of(manifests[0])
        there = self._kubectl.get("--filename=-", "--ignore-not-found", stdin=documents(manifests))
        for each in there:
            if not owned(name).items() <= (each["metadata"].get("labels") or {}).items():
                raise UserError(
                    f"there is a {each['kind']} {each['metadata']['name']} in namespace "
                    f"{each['metadata']['namespace']} already, which this program has not made; "
                    "give another --name"
                )
        self._say(notice)
        if not any(each["kind"] == AUTOSCALER for each in manifests):
            self._delete(_AUTOSCALERS, selector_flag(owned(name)))
        self._kubectl.apply([_with_replicas(each, manifests, there) for each in manifests])
        self.wait(name)
        self._prune(name)
        return str(self._deployment(name)["metadata"]["namespace"])

    def wait(self, name: str) -> None:
        """Waits until all servers are as they should be, and answer."""
        try:
            self._watch(name)
        except KeyboardInterrupt:
            self._say(f"{name}: the rollout goes on; {_hints(name)}")
            raise

    def list(self) -> Iterator[str]:
        """A line for each deployment that this program has made, the newest first."""
        found = self._kubectl.list("deployments", owned())
        for each in sorted(found, key=lambda x: str(x["metadata"]["creationTimestamp"]))[::-1]:
            metadata, answering = each["metadata"], _answering(each)
            model = (metadata.get("annotations") or {}).get(MODEL, "")
            state = f"{answering} of {each['spec'].get('replicas', 1)} servers answer"
            yield f"{metadata['creationTimestamp']}  {deployment_of(each):<20}  {state}  {model}"

    def describe(self, name: str) -> Sequence[Found]:
        """All objects of a deployment."""
        self._deployment(name)
        return self._kubectl.list(f"{_FIRST},{_LAST}", owned(name))

    def delete(self, name: str) -> None:
        """Deletes a deployment, and waits until none of its servers is left."""
        mine = selector_flag(owned(name))
        if not self._kubectl.run("get", f"{_FIRST},{_LAST}", mine, "--output=name"):
            raise self._no_such(name)
        self._delete(_FIRST, mine)
        deadline = time.monotonic() + self._patience.limit_seconds
        last = 0
        while left := len(self._kubectl.list("pods", selector(name))):
            if left != last:
                self._say(f"{name}: {left} server{'s' * (left > 1)} to end")
            if time.monotonic() >= deadline:
                raise RunError(
                    f"{name}: {left} servers are left after {self._patience.limit_seconds:g} s "
                    "(--wait_seconds); give the command again"
                )
            last = left
            time.sleep(self._patience.poll_seconds)
        self._delete(_LAST, mine)

    def previous(self, name: str) -> tuple[Revision, Revision]:
        """What a deployment is, and what it was before."""
        *_, before, now = [None, None, *self._revisions(name)]
        if now is None or before is None:
            raise UserError(
                f"{name} has no revision to go back to: Kubernetes has kept none before the one "
                "that is there"
            )
        for config in before.config_maps:
            if not self._kubectl.find("configmaps", config):
                raise UserError(
                    f"{name} cannot go back to {before.model}: its ConfigMap {config} is gone; "
                    "deploy that version with --model and --version"
                )
        return now, before

    def go_back(self, name: str, revision: Revision) -> None:
        """Makes servers what they were at a revision.

        It is applied as a deploy is: what `kubectl rollout undo` sets, such as a GPU, the next
        deploy would not take away.
        """
        found = self._deployment(name)
        metadata = revision.template["metadata"]
        labels = {key: value for key, value in metadata["labels"].items() if key != _HASH}
        kept = {"labels": labels, "annotations": metadata.get("annotations") or {}}
        self._kubectl.apply(
            [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {
                        "name": found["metadata"]["name"],
                        "labels": found["metadata"]["labels"],
                        "annotations": annotations(revision.model),
                    },
                    "spec": {**found["spec"], "template": {**revision.template, "metadata": kept}},
                }
            ]
        )

    def _watch(self, name: str) -> None:
        deadline = time.monotonic() + self._patience.limit_seconds
        shown: set[str] = set()
        while True:
            state, failure = self._rollout(name)
            lines = [state, *reasons(self._kubectl.list("pods", selector(name)))]
            for line in lines[: 1 if _DONE in state else None]:
                if line not in shown:
                    self._say(f"{name}: {line}")
            shown.update(lines)
            if _DONE in state:
                return
            if failure or time.monotonic() >= deadline:
                limit = f"not done after {self._patience.limit_seconds:g} s (--wait_seconds)"
                found = self._deployment(name)
                old = "the old servers still answer; " if _answering(found) else ""
                raise RunError(
                    f"{name}: {failure or limit}; {old}look at the new ones with `kubectl logs "
                    f"{selector_flag(selector(name))} "
                    f"--namespace={found['metadata']['namespace']}`; {_hints(name)}"
                )
            time.sleep(self._patience.poll_seconds)

    def _rollout(self, name: str) -> tuple[str, str]:
        """How far the servers are, in kubectl's words, and why Kubernetes gave up, if it did."""
        what = f"deployments/{object_name(name)}"
        try:
            return self._kubectl.run("rollout", "status", "--watch=false", what).strip(), ""
        except RefusedError as error:
            if error.reason:
                raise
            return "not done", str(error)

    def _prune(self, name: str) -> None:
        """Deletes the ConfigMaps that no revision needs any more."""
        needed = {config for revision in self._revisions(name) for config in revision.config_maps}
        found = [x["metadata"]["name"] for x in self._kubectl.list("configmaps", owned(name))]
        if old := sorted(set(found) - needed) if needed else []:
            self._delete("configmaps", *old)

    def _revisions(self, name: str) -> Sequence[Revision]:
        """Those that Kubernetes has kept, in their order."""
        uid = self._deployment(name)["metadata"]["uid"]
        found = []
        for each in self._kubectl.list("replicasets", selector(name)):
            owners = each["metadata"].get("ownerReferences") or ()
            number = (each["metadata"].get("annotations") or {}).get(_REVISION, "")
            if number.isdecimal() and uid in [owner["uid"] for owner in owners]:
                found.append(Revision(int(number), each["spec"]["template"]))
        return sorted(found, key=lambda revision: revision.number)

    def _delete(self, *what: str) -> None:
        self._kubectl.run("delete", "--ignore-not-found", "--wait=false", *what)

    def _deployment(self, name: str) -> Found:
        found = self._kubectl.find("deployments", object_name(name))
        if not found or not owned(name).items() <= (found["metadata"].get("labels") or {}).items():
            raise self._no_such(name)
        return found

    def _no_such(self, name: str) -> UserError:
        return UserError(
            f"there is no deployment {name} in {self._kubectl.place}; "
            "`python -m cloud.deploy list --target=kubernetes …` shows what there is"
        )


def _with_replicas(manifest: Found, manifests: Sequence[Found], there: Sequence[Found]) -> Found:
    """A Deployment with as many servers as there are now, where an autoscaler sets their number.

    One without would have one server until the autoscaler looks.
    """
    if manifest["kind"] != "Deployment" or "replicas" in manifest["spec"]:
        return manifest
    [limits] = [x["spec"] for x in manifests if x["kind"] == AUTOSCALER]
    now = sum(x["spec"].get("replicas", 1) for x in there if x["kind"] == "Deployment")
    count = min(max(now, limits["minReplicas"]), limits["maxReplicas"])
    return {**manifest, "spec": {"replicas": count, **manifest["spec"]}}


def reasons(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why pods do not answer yet, each reason once."""
    return list(dict.fromkeys(text for pod in pods for text in _reasons(pod)))


def _reasons(pod: Mapping[str, Any]) -> Iterator[str]:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield _short(condition.get("reason"), condition.get("message"))
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield _short(waiting["reason"], waiting.get("message"))
        ended = (container.get("lastState") or {}).get("terminated")
        if ended:
            why = _short(ended.get("reason"), ended.get("message"))
            yield f"the server ended with exit code {ended.get('exitCode')}: {why}"


def _short(reason: object, message: object) -> str:
    text = " ".join(f"{reason or ''}: {message or ''}".split()).strip(": ")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _answering(deployment: Mapping[str, Any]) -> int:
    return int((deployment.get("status") or {}).get("availableReplicas", 0))


def _hints(name: str) -> str:
    return (
        f"deploy again, or go back with `python -m cloud.deploy rollback {name} …`, or end it with "
        f"`python -m cloud.deploy undeploy {name} …`"
    )
