"""Servers on Kubernetes: `--target=kubernetes`."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence

from absl import flags

from cloud import remote_target
from cloud.deployment import sample_records, served_model
from cloud.deployment.deployment import IMAGE, Deployment, ServerSettings
from cloud.deployment.served_model import ServedModel
from cloud.deployment.target import DeployTarget
from cloud.kubernetes import pod
from cloud.kubernetes import target as kubernetes_target
from cloud.kubernetes.kubectl import Json, Kubectl, RefusedError, check_here, documents, selected
from cloud.kubernetes.patch import patched
from cloud.kubernetes.pod import Volume
from cloud.kubernetes.serving import manifests
from cloud.kubernetes.serving.manifests import AUTOSCALER, MODEL, object_name, owned
from cloud.remote_target import PollOptions, say
from cloud.target import Request
from tfps import byte_size
from tfps.errors import EXIT_OK, RunError, UserError
from tfps.storage.paths import is_cloud

_STEP = 256 << 20  # of memory
_AUTOSCALERS = "horizontalpodautoscalers"
_FIRST = f"deployments,{_AUTOSCALERS},poddisruptionbudgets,services"
_LAST = "networkpolicies,configmaps"  # deleted once no pod needs them any more
_REVISION = "deployment.kubernetes.io/revision"
_HASH = "pod-template-hash"  # Kubernetes adds it to the pods of each revision
_DONE = "successfully rolled out"
_LONGEST_REASON = 300


def define_flags(values: flags.FlagValues) -> None:
    kubernetes_target.define_flags(values)
    for name, text in {
        "allow_from": "label of pods of the namespace that may ask the servers",
        "allow_namespace": "label of namespaces whose pods may ask the servers",
    }.items():
        flags.DEFINE_multi_string(
            name, [], f"Kubernetes: {text}, KEY=value; any number.", flag_values=values
        )


def from_flags(values: flags.FlagValues) -> "ServingOnKubernetes":
    return ServingOnKubernetes(
        Kubectl(values.namespace or "", values.kube_context or ""),
        tuple(Volume.parse(text) for text in values.volume),
        manifests.callers(values.allow_from, values.allow_namespace),
        PollOptions(values.wait_seconds, values.poll_seconds),
        values.patch,
    )


@dataclasses.dataclass
class ServingOnKubernetes(DeployTarget):
    """Servers in a namespace of a Kubernetes cluster, reached from within the cluster."""

    name = "kubernetes"

    kubectl: Kubectl
    volumes: Sequence[Volume]
    callers: Sequence[Json]
    polling: PollOptions
    patch: str = ""  # a file

    def check(self, servers: ServerSettings, base: str) -> None:
        """Refuses a model that no pod will see, and GPUs for an image that uses none."""
        if not is_cloud(base) and not any(volume.holds(base) for volume in self.volumes):
            raise UserError(
                f"the model is in {base} on this machine, where no pod sees it: copy it to "
                "gs://, or give --volume=CLAIM:/PATH, a claim that holds it, with the /PATH under "
                "which it is mounted here"
            )
        if servers.accelerator and servers.image == IMAGE:
            raise UserError(
                f"--machine=accelerator={servers.accelerator} needs an --image that uses GPUs, "
                f"such as {IMAGE}-gpu"
            )

    def check_here(self) -> None:
        check_here()

    def render(self, deployment: Deployment) -> tuple[Request, ...]:
        """The NetworkPolicy, which must be there first, what servers read, and the servers."""
        return self._manifests(_sized(deployment))

    def deploy(self, deployment: Deployment) -> int:
        """Sends the manifests and waits until the servers answer."""
        deployment = _sized(deployment)
        found = self._manifests(deployment)
        name, again = deployment.name, f"--target={self.name} {self.kubectl.again}".strip()
        there = self._there(name, found)
        say(
            f"{name}: {deployment.replicas} with {_size(deployment)} each; they are billed as "
            f"their nodes are, until `python -m cloud.deploy undeploy {name} {again}`"
        )
        self._apply(name, found, there)
        self._wait(name)
        namespace = self._prune(name)
        host = f"{object_name(name)}.{namespace}.svc"
        address = f"http://{host}:{manifests.REST_PORT}/v1/models/{name}"
        say(f"{name}: serves {deployment.model.path} at {address}")
        say(f"ask it from a pod with {sample_records.curl(deployment.model, address)}")
        return EXIT_OK

    def list(self) -> int:
        found = self.kubectl.list("deployments", owned())
        for each in sorted(found, key=lambda x: str(x["metadata"]["creationTimestamp"]))[::-1]:
            state = f"{_answering(each)} of {each['spec'].get('replicas', 1)} servers answer"
            name = each["metadata"]["labels"].get(manifests.INSTANCE, "")
            say(f"{each['metadata']['creationTimestamp']}  {name:<20}  {state}  {_model(each)}")
        return EXIT_OK

    def describe(self, name: str) -> int:
        self._deployment(name)
        found = self.kubectl.list(f"{_FIRST},{_LAST}", owned(name))
        say(remote_target.write(found, "yaml").rstrip("\n"))
        return EXIT_OK

    def undeploy(self, name: str) -> int:
        """Deletes all objects of a deployment, and waits until its servers have ended."""
        mine = selected(owned(name))
        if not self.kubectl.run("get", f"{_FIRST},{_LAST}", mine, "--output=name"):
            raise self._no_such(name)
        self.kubectl.delete(_FIRST, mine)
        deadline = time.monotonic() + self.polling.limit_seconds
        last = 0
        while left := len(self._pods(name)):
            if left != last:
                say(f"{name}: {left} server{'s' * (left > 1)} to end")
            if time.monotonic() >= deadline:
                raise RunError(
                    f"{name}: {left} servers are left after {self.polling.limit_seconds:g} s "
                    "(--wait_seconds); give the command again"
                )
            last = left
            time.sleep(self.polling.poll_seconds)
        self.kubectl.delete(_LAST, mine)
        say(f"{name}: all of it is deleted; the model's files are left alone")
        return EXIT_OK

    def rollback(self, name: str) -> int:
        """Makes the servers what they were before, with their version of the model; waits.

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
            if not self.kubectl.get("configmaps", config, "--ignore-not-found"):
                raise UserError(
                    f"{name} cannot go back to {_model(before)}: its ConfigMap {config} is gone; "
                    "deploy that version with --model and --version"
                )
        if is_cloud(_model(before)):
            ServedModel.read(_model(before))  # which may have been deleted since
        say(f"{name}: from {_model(now)} back to {_model(before)}")
        before["metadata"]["labels"].pop(_HASH, None)
        before["metadata"].pop("creationTimestamp", None)
        kept = {key: found["metadata"][key] for key in ("name", "labels")}
        own = {**kept, "annotations": manifests.annotations(_model(before))}
        spec = {**found["spec"], "template": before}
        self.kubectl.apply([pod.manifest("apps/v1", "Deployment", own, spec=spec)])
        self._wait(name)
        return EXIT_OK

    def _manifests(self, deployment: Deployment) -> tuple[Json, ...]:
        self.check(deployment, deployment.model.base)
        where = f"--machine=memory={byte_size.show(deployment.memory_bytes)}"
        served_model.check_memory(deployment.model, deployment.memory_bytes, where)
        found = manifests.manifests(deployment, self.callers, self.volumes)
        if self.patch:
            found = patched(found, self.patch)
        return self.kubectl.placed(found)

    def _there(self, name: str, wanted: Sequence[Json]) -> Sequence[Json]:
        """The objects that there are already; refuses those that this program has not made."""
        there = self.kubectl.get("--filename=-", "--ignore-not-found", stdin=documents(wanted))
        for each in there:
            if not _is_of(name, each):
                raise UserError(
                    f"there is a {each['kind']} {each['metadata']['name']} in namespace "
                    f"{each['metadata']['namespace']} already, which this program has not made; "
                    "give another --name"
                )
        return there

    def _apply(self, name: str, wanted: Sequence[Json], there: Sequence[Json]) -> None:
        if limits := next((x["spec"] for x in wanted if x["kind"] == AUTOSCALER), None):
            # A Deployment without a number would have one server until the autoscaler looks.
            now = sum(x["spec"].get("replicas", 1) for x in there if x["kind"] == "Deployment")
            count = {"replicas": min(max(now, limits["minReplicas"]), limits["maxReplicas"])}
            wanted = [
                {**x, "spec": {**count, **x["spec"]}} if x["kind"] == "Deployment" else x
                for x in wanted
            ]
        else:
            self.kubectl.delete(_AUTOSCALERS, selected(owned(name)))
        self.kubectl.apply(wanted)

    def _prune(self, name: str) -> str:
        """Deletes the ConfigMaps that no revision needs any more; returns the namespace."""
        deployment, templates = self._revisions(name)
        needed = {config for template in templates for config in _config_maps(template)}
        found = {x["metadata"]["name"] for x in self.kubectl.list("configmaps", owned(name))}
        if needed and found - needed:
            self.kubectl.delete("configmaps", *sorted(found - needed))
        return str(deployment["metadata"]["namespace"])

    def _wait(self, name: str) -> None:
        """Waits until all servers are as they should be, and answer."""
        try:
            self._watch(name)
        except KeyboardInterrupt:
            say(f"{name}: the rollout continues; {_hints(name)}")
            raise

    def _watch(self, name: str) -> None:
        deadline = time.monotonic() + self.polling.limit_seconds
        shown: set[str] = set()
        while True:
            state, failure = self._rollout(name)
            is_done = _DONE in state
            for line in [state, *([] if is_done else reasons(self._pods(name)))]:
                if line and line not in shown:
                    shown.add(line)
                    say(f"{name}: {line}")
            if is_done:
                return
            if failure or time.monotonic() >= deadline:
                limit = f"not done after {self.polling.limit_seconds:g} s (--wait_seconds)"
                found = self._deployment(name)
                old = "the old servers still answer; " if _answering(found) else ""
                raise RunError(
                    f"{name}: {failure or limit}; {old}look at the new ones with `kubectl logs "
                    f"{selected(manifests.selector(name))} "
                    f"--namespace={found['metadata']['namespace']}`; {_hints(name)}"
                )
            time.sleep(self.polling.poll_seconds)

    def _rollout(self, name: str) -> tuple[str, str]:
        """How far the servers are, in kubectl's words, and why Kubernetes gave up, if it did."""
        what = f"deployments/{object_name(name)}"
        try:
            return self.kubectl.run("rollout", "status", "--watch=false", what).strip(), ""
        except RefusedError as error:
            if error.reason:
                raise
            return "", str(error)

    def _revisions(self, name: str) -> tuple[Json, Sequence[Json]]:
        """The Deployment, and the pods' templates that Kubernetes has kept, the newest last."""
        deployment, found = self._deployment(name), []
        for each in self.kubectl.list("replicasets", manifests.selector(name)):
            owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()]
            number = (each["metadata"].get("annotations") or {}).get(_REVISION, "")
            if number.isdecimal() and deployment["metadata"]["uid"] in owners:
                found.append((int(number), each["spec"]["template"]))
        return deployment, [template for _, template in sorted(found, key=lambda x: x[0])]

    def _pods(self, name: str) -> Sequence[Json]:
        return self.kubectl.list("pods", manifests.selector(name))

    def _deployment(self, name: str) -> Json:
        found = self.kubectl.get("deployments", object_name(name), "--ignore-not-found")
        if not found or not _is_of(name, found[0]):
            raise self._no_such(name)
        return found[0]

    def _no_such(self, name: str) -> UserError:
        return UserError(
            f"there is no deployment {name} in {self.kubectl.place}; "
            "`python -m cloud.deploy list --target=kubernetes …` shows what there is"
        )


def _sized(deployment: Deployment) -> Deployment:
    """With what each server asks of its node; without that no autoscaler could count."""
    needed = served_model.memory_needed(deployment.model)
    memory = deployment.memory_bytes or math.ceil(needed / _STEP) * _STEP
    return dataclasses.replace(deployment, memory_bytes=memory, cpus=deployment.cpus or 1)


def _size(deployment: Deployment) -> str:
    gpus = f", {deployment.accelerators} {deployment.accelerator}" if deployment.accelerator else ""
    cpus = f"{deployment.cpus} CPU{'s' * (deployment.cpus > 1)}"
    return f"{cpus}, {byte_size.show(deployment.memory_bytes)} of memory{gpus}"


def reasons(pods: Sequence[Json]) -> list[str]:
    """Why pods do not answer yet, each reason once."""
    return list(dict.fromkeys(text for x in pods for text in _reasons(x.get("status") or {})))


def _reasons(status: Json) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield _short(condition)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield _short(waiting)
        if ended := (container.get("lastState") or {}).get("terminated"):
            yield f"the server ended with exit code {ended.get('exitCode')}: {_short(ended)}"


def _short(found: Json) -> str:
    text = f"{found.get('reason') or ''}: {found.get('message') or ''}"
    text = " ".join(text.split()).strip(": ")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _is_of(name: str, found: Json) -> bool:
    return owned(name).items() <= (found["metadata"].get("labels") or {}).items()


def _answering(deployment: Json) -> int:
    return int((deployment.get("status") or {}).get("availableReplicas", 0))


def _model(found: Json) -> str:
    """Directory of the version that a Deployment, or a template of its pods, serves."""
    return str((found["metadata"].get("annotations") or {}).get(MODEL, ""))


def _config_maps(template: Json) -> list[str]:
    """Names of the ConfigMaps that pods of a template need."""
    return [x["configMap"]["name"] for x in template["spec"].get("volumes", ()) if "configMap" in x]


def _hints(name: str) -> str:
    return (
        f"deploy again, or go back with `python -m cloud.deploy rollback {name} …`, or end it with "
        f"`python -m cloud.deploy undeploy {name} …`"
    )
