"""Makes, changes and ends the servers of deployments in a namespace, and waits for that."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cloud.follower import Patience
from cloud.kubernetes.kubectl import Json, Kubectl, RefusedError, documents, selected
from cloud.kubernetes.serving import manifests
from cloud.kubernetes.serving.manifests import AUTOSCALER, MODEL, object_name, owned
from tfps.errors import RunError, UserError

_AUTOSCALERS = "horizontalpodautoscalers"
_FIRST = f"deployments,{_AUTOSCALERS},poddisruptionbudgets,services"
_LAST = "networkpolicies,configmaps"  # deleted once no pod needs them any more
_REVISION = "deployment.kubernetes.io/revision"
_HASH = "pod-template-hash"  # Kubernetes adds it to the pods of each revision
_DONE = "successfully rolled out"
_LONGEST_REASON = 300


class Servers:
    """Deployments of one namespace; `say` shows a line."""

    def __init__(self, kubectl: Kubectl, patience: Patience, say: Callable[[str], None]):
        self._kubectl = kubectl
        self._patience = patience
        self._say = say

    def deploy(self, wanted: Sequence[Json], notice: str) -> str:
        """Makes a deployment of these manifests, or changes one; returns the namespace.

        Waits until all servers are as wanted, and answer. What this program has not made is left
        alone. The notice is shown before anything is made.
        """
        name = manifests.deployment_of(wanted[0])
        there = self._kubectl.get("--filename=-", "--ignore-not-found", stdin=documents(wanted))
        for each in there:
            if not _is_of(name, each):
                raise UserError(
                    f"there is a {each['kind']} {each['metadata']['name']} in namespace "
                    f"{each['metadata']['namespace']} already, which this program has not made; "
                    "give another --name"
                )
        self._say(notice)
        if limits := next((x["spec"] for x in wanted if x["kind"] == AUTOSCALER), None):
            # A Deployment without a number would have one server until the autoscaler looks.
            now = sum(x["spec"].get("replicas", 1) for x in there if x["kind"] == "Deployment")
            count = {"replicas": min(max(now, limits["minReplicas"]), limits["maxReplicas"])}
            wanted = [
                {**x, "spec": {**count, **x["spec"]}} if x["kind"] == "Deployment" else x
                for x in wanted
            ]
        else:
            self._delete(_AUTOSCALERS, selected(owned(name)))
        self._kubectl.apply(wanted)
        self._wait(name)
        deployment, templates = self._revisions(name)
        needed = {config for template in templates for config in _config_maps(template)}
        found = {x["metadata"]["name"] for x in self._kubectl.list("configmaps", owned(name))}
        if needed and found - needed:
            self._delete("configmaps", *sorted(found - needed))
        return str(deployment["metadata"]["namespace"])

    def list(self) -> Iterator[str]:
        """A line for each deployment that this program has made, the newest first."""
        found = self._kubectl.list("deployments", owned())
        for each in sorted(found, key=lambda x: str(x["metadata"]["creationTimestamp"]))[::-1]:
            state = f"{_answering(each)} of {each['spec'].get('replicas', 1)} servers answer"
            name, created = manifests.deployment_of(each), each["metadata"]["creationTimestamp"]
            yield f"{created}  {name:<20}  {state}  {_model(each)}"

    def describe(self, name: str) -> Sequence[Json]:
        """All objects of a deployment."""
        self._deployment(name)
        return self._kubectl.list(f"{_FIRST},{_LAST}", owned(name))

    def delete(self, name: str) -> None:
        """Deletes a deployment, and waits until none of its servers is left."""
        mine = selected(owned(name))
        if not self._kubectl.run("get", f"{_FIRST},{_LAST}", mine, "--output=name"):
            raise self._no_such(name)
        self._delete(_FIRST, mine)
        deadline = time.monotonic() + self._patience.limit_seconds
        last = 0
        while left := len(self._pods(name)):
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

    def rollback(self, name: str, check: Callable[[str], object]) -> None:
        """Makes servers what they were before; `check` refuses the directory of a lost model.

        The old template is applied as a deploy is: what `kubectl rollout undo` brings back, such as
        a GPU, the next deploy would not take away.
        """
        found, templates = self._revisions(name)
        if len(templates) < 2:
            raise UserError(
                f"{name} has no revision to go back to: Kubernetes has kept none before the one "
                "that is there"
            )
        before, now = templates[-2:]
        for config in _config_maps(before):
            if not self._kubectl.get("configmaps", config, "--ignore-not-found"):
                raise UserError(
                    f"{name} cannot go back to {_model(before)}: its ConfigMap {config} is gone; "
                    "deploy that version with --model and --version"
                )
        check(_model(before))
        self._say(f"{name}: from {_model(now)} back to {_model(before)}")
        before["metadata"]["labels"].pop(_HASH, None)
        before["metadata"].pop("creationTimestamp", None)
        kept = {key: found["metadata"][key] for key in ("name", "labels")}
        own = {**kept, "annotations": manifests.annotations(_model(before))}
        self._kubectl.apply(
            [
                {
                    **{key: found[key] for key in ("apiVersion", "kind")},
                    "metadata": own,
                    "spec": {**found["spec"], "template": before},
                }
            ]
        )
        self._wait(name)

    def _wait(self, name: str) -> None:
        """Waits until all servers are as they should be, and answer."""
        try:
            self._watch(name)
        except KeyboardInterrupt:
            self._say(f"{name}: the rollout goes on; {_hints(name)}")
            raise

    def _watch(self, name: str) -> None:
        deadline = time.monotonic() + self._patience.limit_seconds
        shown: set[str] = set()
        while True:
            state, failure = self._rollout(name)
            is_done = _DONE in state
            for line in [state, *([] if is_done else reasons(self._pods(name)))]:
                if line not in shown:
                    shown.add(line)
                    self._say(f"{name}: {line}")
            if is_done:
                return
            if failure or time.monotonic() >= deadline:
                limit = f"not done after {self._patience.limit_seconds:g} s (--wait_seconds)"
                found = self._deployment(name)
                old = "the old servers still answer; " if _answering(found) else ""
                raise RunError(
                    f"{name}: {failure or limit}; {old}look at the new ones with `kubectl logs "
                    f"{selected(manifests.selector(name))} "
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

    def _revisions(self, name: str) -> tuple[Json, Sequence[Json]]:
        """The Deployment, and the pods' templates that Kubernetes has kept, the newest last."""
        deployment, found = self._deployment(name), []
        for each in self._kubectl.list("replicasets", manifests.selector(name)):
            owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()]
            number = (each["metadata"].get("annotations") or {}).get(_REVISION, "")
            if number.isdecimal() and deployment["metadata"]["uid"] in owners:
                found.append((int(number), each["spec"]["template"]))
        return deployment, [template for _, template in sorted(found, key=lambda x: x[0])]

    def _pods(self, name: str) -> Sequence[Json]:
        return self._kubectl.list("pods", manifests.selector(name))

    def _delete(self, *what: str) -> None:
        self._kubectl.run("delete", "--ignore-not-found", "--wait=false", *what)

    def _deployment(self, name: str) -> Json:
        found = self._kubectl.get("deployments", object_name(name), "--ignore-not-found")
        if not found or not _is_of(name, found[0]):
            raise self._no_such(name)
        return found[0]

    def _no_such(self, name: str) -> UserError:
        return UserError(
            f"there is no deployment {name} in {self._kubectl.place}; "
            "`python -m cloud.deploy list --target=kubernetes …` shows what there is"
        )


def reasons(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why pods do not answer yet, each reason once."""
    return list(dict.fromkeys(text for pod in pods for text in _reasons(pod.get("status") or {})))


def _reasons(status: Mapping[str, Any]) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield _short(condition)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield _short(waiting)
        if ended := (container.get("lastState") or {}).get("terminated"):
            yield f"the server ended with exit code {ended.get('exitCode')}: {_short(ended)}"


def _short(found: Mapping[str, Any]) -> str:
    text = f"{found.get('reason') or ''}: {found.get('message') or ''}"
    text = " ".join(text.split()).strip(": ")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _is_of(name: str, found: Mapping[str, Any]) -> bool:
    return owned(name).items() <= (found["metadata"].get("labels") or {}).items()


def _answering(deployment: Mapping[str, Any]) -> int:
    return int((deployment.get("status") or {}).get("availableReplicas", 0))


def _model(found: Mapping[str, Any]) -> str:
    """Directory of the version that a Deployment, or a template of its pods, serves."""
    return str((found["metadata"].get("annotations") or {}).get(MODEL, ""))


def _config_maps(template: Mapping[str, Any]) -> list[str]:
    """Names of the ConfigMaps that pods of a template need."""
    return [x["configMap"]["name"] for x in template["spec"]["volumes"] if "configMap" in x]


def _hints(name: str) -> str:
    return (
        f"deploy again, or go back with `python -m cloud.deploy rollback {name} …`, or end it with "
        f"`python -m cloud.deploy undeploy {name} …`"
    )
