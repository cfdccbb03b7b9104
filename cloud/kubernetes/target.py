"""A job on Kubernetes: `--target=jobset`, or `--target=tfjob` where Kubeflow's operator is."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from cloud import remote_target
from cloud.job_spec import JobSpec
from cloud.kubernetes import pod
from cloud.kubernetes.cluster import KubernetesCluster
from cloud.kubernetes.config_map import config_map
from cloud.kubernetes.jobset import cluster, has_config_map, jobset
from cloud.kubernetes.kind import JOBSET, TFJOB, KubernetesKind
from cloud.kubernetes.network_policy import network_policy
from cloud.kubernetes.sender import KubernetesSender
from cloud.kubernetes.tfjob import check_size, tfjob
from cloud.kubernetes.volume import Volume
from cloud.remote_target import Patience, RemoteTarget
from cloud.target import Request
from tfps.errors import EXIT_OK, UserError

_Render = Callable[[JobSpec, Sequence[Volume]], dict[str, Any]]
_KINDS: dict[str, tuple[KubernetesKind, _Render]] = {
    JOBSET.name: (JOBSET, jobset),
    TFJOB.name: (TFJOB, tfjob),
}


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
        "Kubernetes: sends the manifests with the Kubernetes client; else they are printed.",
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
        """Describes where to run.

        Args:
            namespace: Empty for that of the context.
            context: Of the kubeconfig; empty for its current one.
        """
        super().__init__(patience)
        self._kind, self._render = _KINDS[name]
        self._namespace = namespace
        self._context = context
        self._volumes = volumes
        self._applies = applies

    @property
    def again(self) -> str:
        """Flags with which this program reaches the same place again."""
        own = {"target": self._kind.name, "namespace": self._namespace}
        own["kube_context"] = self._context
        return " ".join(f"--{name}={value}" for name, value in own.items() if value)

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """The NetworkPolicy, which must be there first, a large cluster's ConfigMap, the job."""
        pod.check(spec, self._kind.name)
        manifests = [network_policy(spec, {self._kind.name_label: spec.name})]
        if self._kind is JOBSET and has_config_map(spec):
            manifests.append(config_map(spec, cluster(spec)))
        if self._kind is TFJOB:
            check_size(spec, self._namespace)
        job = self._render(spec, self._volumes)
        _check_object(job)
        manifests.append(job)
        if self._namespace:
            for manifest in manifests:
                manifest["metadata"]["namespace"] = self._namespace
        return tuple(manifests)

    def sender(self) -> KubernetesSender:
        """The Kubernetes client, with the credentials of the kubeconfig."""
        return KubernetesSender(self._kind, KubernetesCluster(self._namespace, self._context))

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


def _check_object(job: dict[str, Any]) -> None:
    size = len(json.dumps(job))
    if size > _MOST_OBJECT_BYTES:
        raise UserError(
            f"the {job['kind']} has {size} bytes, but Kubernetes keeps no object of much more than "
            f"{_MOST_OBJECT_BYTES}: arguments and --env are repeated for every role; put them into "
            "the config or a file that the tasks read"
        )
