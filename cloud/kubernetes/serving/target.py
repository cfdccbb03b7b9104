"""Servers on Kubernetes: `--target=kubernetes`."""

import dataclasses
import math
from collections.abc import Sequence

from absl import flags

from cloud import requests_text
from cloud.deployment import checks, example_request
from cloud.deployment.deployment import Deployment
from cloud.deployment.served_model import ServedModel
from cloud.deployment.server_settings import IMAGE, ServerSettings
from cloud.deployment.target import DeployTarget
from cloud.follower import Patience
from cloud.kubernetes import target as kubernetes_target
from cloud.kubernetes.kubectl import Json, Kubectl, check_here
from cloud.kubernetes.pod import Volume
from cloud.kubernetes.serving import manifests
from cloud.kubernetes.serving.servers import Servers
from cloud.target import Request
from tfps import byte_size
from tfps.errors import EXIT_OK, UserError
from tfps.storage.paths import is_cloud

_STEP = 256 << 20  # of memory


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of this target."""
    kubernetes_target.define_flags(values)
    for name, text in {
        "allow_from": "label of pods of the namespace that may ask the servers",
        "allow_namespace": "label of namespaces whose pods may ask the servers",
    }.items():
        flags.DEFINE_multi_string(
            name, [], f"Kubernetes: {text}, KEY=value; any number.", flag_values=values
        )


def from_flags(values: flags.FlagValues) -> "ServingOnKubernetes":
    """The target that the flags of `define_flags`, --wait_seconds and --poll_seconds describe."""
    return ServingOnKubernetes(
        Kubectl(values.namespace or "", values.kube_context or ""),
        tuple(Volume.parse(text) for text in values.volume),
        manifests.callers(values.allow_from, values.allow_namespace),
        values.apply,
        Patience(values.wait_seconds, values.poll_seconds),
    )


class ServingOnKubernetes(DeployTarget):
    """Servers in a namespace of a Kubernetes cluster, reached from within the cluster."""

    name = "kubernetes"

    def __init__(
        self,
        kubectl: Kubectl,
        volumes: Sequence[Volume],
        callers: Sequence[Json],
        applies: bool,
        patience: Patience,
    ):
        self._kubectl = kubectl
        self._volumes = volumes
        self._callers = callers
        self._applies = applies
        self._servers = Servers(kubectl, patience, _say)

    def check(self, servers: ServerSettings, base: str) -> None:
        """Refuses a model that no pod will see, and GPUs for an image that uses none."""
        if not is_cloud(base) and not any(
            base == volume.path or base.startswith(volume.path.rstrip("/") + "/")
            for volume in self._volumes
        ):
            raise UserError(
                f"the model is in {base} on this machine, where no pod sees it: copy it to "
                "gs://, or give --volume=CLAIM:/PATH, a claim that holds it, with the /PATH under "
                "which it is mounted here"
            )
        if servers.accelerator and servers.image == IMAGE:
            raise UserError(
                f"--accelerator={servers.accelerator} needs an --image that uses GPUs, such as "
                f"{IMAGE}-gpu"
            )

    def check_here(self) -> None:
        """Looks for kubectl, unless manifests are only printed."""
        if self._applies:
            check_here()

    def render(self, deployment: Deployment) -> tuple[Request, ...]:
        """The NetworkPolicy, which must be there first, what servers read, and the servers."""
        return self._manifests(_sized(deployment))

    def deploy(self, deployment: Deployment) -> int:
        """Prints the manifests for kubectl, or with --apply sends them and waits."""
        deployment = _sized(deployment)
        found = self._manifests(deployment)
        if not self._applies:
            _say(requests_text.write(found, "yaml").rstrip("\n"))
            return EXIT_OK
        name, again = deployment.name, f"--target={self.name} {self._kubectl.again}".strip()
        namespace = self._servers.deploy(
            found,
            f"{name}: {deployment.replicas} with {_size(deployment)} each; they are billed as "
            f"their nodes are, until `python -m cloud.deploy undeploy {name} {again}`",
        )
        host = f"{manifests.object_name(name)}.{namespace}.svc"
        address = f"http://{host}:{manifests.REST_PORT}/v1/models/{name}"
        _say(f"{name}: serves {deployment.model.path} at {address}")
        _say(f"ask it from a pod with {example_request.curl(deployment.model, address)}")
        return EXIT_OK

    def list(self) -> int:
        """Prints the deployments of the namespace, the newest first."""
        for line in self._servers.list():
            _say(line)
        return EXIT_OK

    def describe(self, name: str) -> int:
        """Prints all objects of a deployment, as YAML."""
        _say(requests_text.write(self._servers.describe(name), "yaml").rstrip("\n"))
        return EXIT_OK

    def undeploy(self, name: str) -> int:
        """Deletes all objects of a deployment, and waits until its servers have ended."""
        self._servers.delete(name)
        _say(f"{name}: all of it is deleted; the model's files are left alone")
        return EXIT_OK

    def rollback(self, name: str) -> int:
        """Makes the servers what they were before, with their version of the model; waits."""
        # The version may have been deleted since; what is on a volume cannot be looked at here.
        self._servers.rollback(name, lambda path: is_cloud(path) and ServedModel.read(path))
        return EXIT_OK

    def _manifests(self, deployment: Deployment) -> tuple[Json, ...]:
        self.check(deployment, deployment.model.base)
        where = f"--memory={byte_size.show(deployment.memory_bytes)}"
        checks.check_memory(deployment.model, deployment.memory_bytes, where)
        found = manifests.manifests(deployment, self._callers, self._volumes)
        return self._kubectl.placed(found)


def _sized(deployment: Deployment) -> Deployment:
    """With what each server asks of its node; without that no autoscaler could count."""
    needed = checks.memory_needed(deployment.model)
    memory = deployment.memory_bytes or math.ceil(needed / _STEP) * _STEP
    return dataclasses.replace(deployment, memory_bytes=memory, cpus=deployment.cpus or 1)


def _size(deployment: Deployment) -> str:
    gpus = f", {deployment.accelerators} {deployment.accelerator}" if deployment.accelerator else ""
    cpus = f"{deployment.cpus} CPU{'s' * (deployment.cpus > 1)}"
    return f"{cpus}, {byte_size.show(deployment.memory_bytes)} of memory{gpus}"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the verbs are for
