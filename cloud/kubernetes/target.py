"""A job on Kubernetes: `--target=jobset`, or `--target=tfjob` where Kubeflow's operator is."""

import json
from collections.abc import Sequence
from typing import Any

from absl import flags

from cloud import remote_target
from cloud.job_spec import JobSpec
from cloud.kubernetes import manifests, pod
from cloud.kubernetes.kubectl import Kubectl
from cloud.kubernetes.manifests import JOBSET, TFJOB
from cloud.kubernetes.pod import Volume
from cloud.kubernetes.sender import KubernetesSender
from cloud.remote_target import Patience, RemoteTarget
from cloud.target import Request
from tfps.errors import EXIT_OK, UserError

_MOST_OBJECT_BYTES = 1 << 20  # etcd takes 1.5 MiB, and the controller adds what it did


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of all targets on Kubernetes."""

    def string(name: str, text: str) -> None:
        flags.DEFINE_string(name, None, f"Kubernetes: {text}", flag_values=values)

    string("namespace", "namespace; default: that of the context.")
    string("kube_context", "context of the kubeconfig; default: its current one.")
    flags.DEFINE_multi_string(
        "volume",
        [],
        "Kubernetes: a persistent volume claim that every pod mounts, CLAIM:/PATH; any number.",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "apply",
        False,
        "Kubernetes: sends the manifests with kubectl; else they are printed.",
        flag_values=values,
    )


def from_flags(values: flags.FlagValues) -> "KubernetesTarget":
    """The target that --target and the flags of `define_flags` describe."""
    return KubernetesTarget(
        values.target,
        namespace=values.namespace or "",
        context=values.kube_context or "",
        volumes=tuple(Volume.parse(text) for text in values.volume),
        applies=values.apply,
        # Pods' logs can be read as soon as they are written.
        patience=Patience(values.wait_seconds, values.poll_seconds, last_looks=1),
    )


class KubernetesTarget(RemoteTarget):
    """A namespace of a Kubernetes cluster.

    The tasks are pods of a JobSet or a TFJob; a NetworkPolicy lets only them reach each other.
    """

    has_own_machines = True

    def __init__(
        self,
        name: str,
        namespace: str,
        context: str,
        volumes: Sequence[Volume],
        applies: bool,
        patience: Patience,
    ):
        super().__init__(patience)
        self._kind = JOBSET if name == JOBSET.name else TFJOB
        self._namespace = namespace
        self._context = context
        self._volumes = volumes
        self._applies = applies

    @property
    def again(self) -> str:
        """Flags with which this program reaches the same place again."""
        return flags_of_place(self._kind.name, self._namespace, self._context)

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """The NetworkPolicy, which must be there first, a large cluster's ConfigMap, the job."""
        pod.check(spec, self._kind.name)
        found = [manifests.network_policy(spec, {self._kind.name_label: spec.name})]
        if self._kind is JOBSET:
            if manifests.has_config_map(spec):
                found.append(manifests.config_map(spec))
            found.append(manifests.jobset(spec, self._volumes))
        else:
            manifests.check_tfjob_size(spec, self._namespace)
            found.append(manifests.tfjob(spec, self._volumes))
        _check_object(found[-1])
        return tuple(in_namespace(found, self._namespace))

    def sender(self) -> KubernetesSender:
        """kubectl, with the credentials of the kubeconfig."""
        return KubernetesSender(self._kind, Kubectl(self._namespace, self._context))

    def submit(self, spec: JobSpec, wait: bool) -> int:
        """Prints the manifests for kubectl, or with --apply sends them."""
        if self._applies:
            return super().submit(spec, wait)
        if wait:
            raise UserError(
                f"--wait needs --apply: without it --target={self._kind.name} prints manifests"
            )
        print(remote_target.write(self.render(spec), "yaml"), end="")  # noqa: T201 - asked for
        return EXIT_OK


def flags_of_place(target: str, namespace: str, context: str) -> str:
    """Flags with which this program reaches the same place again."""
    own = {"target": target, "namespace": namespace, "kube_context": context}
    return " ".join(f"--{name}={value}" for name, value in own.items() if value)


def in_namespace(found: Sequence[dict[str, Any]], namespace: str) -> Sequence[dict[str, Any]]:
    """Manifests with their namespace, where it is known."""
    if namespace:
        for manifest in found:
            manifest["metadata"]["namespace"] = namespace
    return found


def _check_object(job: dict[str, Any]) -> None:
    size = len(json.dumps(job))
    if size > _MOST_OBJECT_BYTES:
        raise UserError(
            f"the {job['kind']} has {size} bytes, but Kubernetes keeps no object of much more than "
            f"{_MOST_OBJECT_BYTES}: arguments and --env are repeated for every role; put them into "
            "the config or a file that the tasks read"
        )
