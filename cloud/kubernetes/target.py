"""A job on Kubernetes: `--target=jobset`, or `--target=tfjob` where Kubeflow's operator is."""

import json
from collections.abc import Sequence

from absl import flags

from cloud import remote_target
from cloud.job_spec import JobSpec
from cloud.kubernetes import manifests, pod
from cloud.kubernetes.kubectl import Json, Kubectl
from cloud.kubernetes.manifests import JOBSET, TFJOB
from cloud.kubernetes.pod import Volume
from cloud.kubernetes.sender import KubernetesSender
from cloud.remote_target import Patience, RemoteTarget
from cloud.target import Request
from tfps.errors import EXIT_OK, UserError

_MOST_OBJECT_BYTES = 1 << 20  # etcd takes 1.5 MiB, and the controller adds what it did


def define_flags(values: flags.FlagValues) -> None:
    string, many, switch = flags.DEFINE_string, flags.DEFINE_multi_string, flags.DEFINE_boolean
    for define, name, default, text in (
        (string, "namespace", None, "namespace; default: that of the context."),
        (string, "kube_context", None, "context of the kubeconfig; default: its current one."),
        (many, "volume", [], "CLAIM:/PATH, a volume claim that every pod mounts; any number."),
        (switch, "apply", False, "sends the manifests with kubectl; else they are printed."),
    ):
        define(name, default, f"Kubernetes: {text}", flag_values=values)


def from_flags(values: flags.FlagValues) -> "KubernetesTarget":
    return KubernetesTarget(
        values.target,
        Kubectl(values.namespace or "", values.kube_context or ""),
        tuple(Volume.parse(text) for text in values.volume),
        values.apply,
        # Pods' logs can be read as soon as they are written.
        Patience(values.wait_seconds, values.poll_seconds, last_looks=1),
    )


class KubernetesTarget(RemoteTarget):
    """Jobs in a namespace, whose tasks are pods of a JobSet or a TFJob."""

    has_own_machines = True

    def __init__(
        self,
        name: str,
        kubectl: Kubectl,
        volumes: Sequence[Volume],
        applies: bool,
        limits: Patience,
    ):
        super().__init__(limits)
        self._kind = JOBSET if name == JOBSET.name else TFJOB
        self._kubectl = kubectl
        self._volumes = volumes
        self._applies = applies

    @property
    def again(self) -> str:
        return f"--target={self._kind.name} {self._kubectl.again}".strip()

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """The NetworkPolicy, which must be there first, a large cluster's ConfigMap, the job."""
        pod.check(spec, self._kind.name)
        found = [manifests.network_policy(spec, {self._kind.name_label: spec.name})]
        if self._kind is JOBSET:
            if manifests.has_config_map(spec):
                found.append(manifests.config_map(spec))
            found.append(manifests.jobset(spec, self._volumes))
        else:
            manifests.check_tfjob_size(spec, self._kubectl.namespace)
            found.append(manifests.tfjob(spec, self._volumes))
        _check_object(found[-1])
        return self._kubectl.placed(found)

    def sender(self) -> KubernetesSender:
        return KubernetesSender(self._kind, self._kubectl)

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


def _check_object(job: Json) -> None:
    size = len(json.dumps(job))
    if size > _MOST_OBJECT_BYTES:
        raise UserError(
            f"the {job['kind']} has {size} bytes, but Kubernetes keeps no object of much more than "
            f"{_MOST_OBJECT_BYTES}: arguments and --env are repeated for every role; put them into "
            "the config or a file that the tasks read"
        )
