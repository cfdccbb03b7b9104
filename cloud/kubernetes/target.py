"""A job on Kubernetes: `--target=jobset`, or trainjob or tfjob where Kubeflow's operators are."""

import dataclasses
import json
from collections.abc import Sequence

from absl import flags

from cloud.job_spec import JobSpec
from cloud.kubernetes import manifests, pod
from cloud.kubernetes.kubectl import Json, Kubectl
from cloud.kubernetes.manifests import JOBSET, TFJOB, TRAINJOB, KubernetesKind
from cloud.kubernetes.patch import patched
from cloud.kubernetes.pod import Volume
from cloud.kubernetes.sender import KubernetesSender
from cloud.remote_target import PollOptions, RemoteTarget, say, warn_of_paths_here
from cloud.target import Request
from tfps.errors import UserError

_MOST_OBJECT_BYTES = 1 << 20  # etcd takes 1.5 MiB, and the controller adds what it did


KINDS = {kind.name: kind for kind in (JOBSET, TRAINJOB, TFJOB)}


def define_flags(values: flags.FlagValues) -> None:
    string, many = flags.DEFINE_string, flags.DEFINE_multi_string
    for define, name, default, text in (
        (string, "namespace", None, "namespace; default: that of the context."),
        (string, "kube_context", None, "context of the kubeconfig; default: its current one."),
        (many, "volume", [], "CLAIM:/PATH, a volume claim that every pod mounts; any number."),
        (string, "patch", "", "YAML file that is merged into the manifests (docs/kubernetes.md)."),
    ):
        define(name, default, f"Kubernetes: {text}", flag_values=values)


def from_flags(values: flags.FlagValues) -> "KubernetesTarget":
    return KubernetesTarget(
        # Pods' logs can be read as soon as they are written.
        PollOptions(values.wait_seconds, values.poll_seconds, last_looks=1),
        KINDS[values.target],
        Kubectl(values.namespace or "", values.kube_context or ""),
        tuple(Volume.parse(text) for text in values.volume),
        values.patch,
    )


@dataclasses.dataclass
class KubernetesTarget(RemoteTarget):
    """Jobs in a namespace, whose tasks are pods of a JobSet, a TrainJob's JobSet or a TFJob."""

    has_own_machines = True

    kind: KubernetesKind
    kubectl: Kubectl
    volumes: Sequence[Volume]
    patch: str = ""  # a file

    @property
    def again(self) -> str:
        return f"--target={self.kind.name} {self.kubectl.again}".strip()

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """The NetworkPolicy, which must be there first, a large cluster's ConfigMap, the job."""
        pod.check(spec, self.kind.name)
        if not self.patch:  # which may mount what it needs
            pod.check_job_dir(spec, self.volumes)
        found = [manifests.network_policy(spec, {self.kind.name_label: spec.name})]
        if self.kind is TFJOB:
            manifests.check_tfjob_size(spec, self.kubectl.namespace)
            found.append(manifests.tfjob(spec, self.volumes))
        else:
            if manifests.has_config_map(spec, self.kind):
                found.append(manifests.config_map(spec, self.kind))
            if self.kind is TRAINJOB:
                found.append(manifests.training_runtime(spec, self.volumes))
                found.append(manifests.trainjob(spec))
            else:
                found.append(manifests.jobset(spec, self.volumes))
        if self.patch:
            found = patched(found, self.patch)
        for each in found:
            _check_object(each)
        return self.kubectl.placed(found)

    def stage(self, spec: JobSpec) -> None:
        if self.patch:  # which may ask for what is missed here, and mount it
            return
        warn_of_paths_here(spec, lambda path: any(each.holds(path) for each in self.volumes))
        bare = [role.job for role in spec.roles if not (role.cpus and role.memory_bytes)]
        if bare:
            say(
                f"WARNING: {', '.join(bare)} ask for no CPUs or no memory, so their pods may land "
                "on a full node and are evicted first; give --machine=cpus=4,memory=16GiB"
            )

    def sender(self) -> KubernetesSender:
        return KubernetesSender(self.kind, self.kubectl)


def _check_object(job: Json) -> None:
    size = len(json.dumps(job))
    if size > _MOST_OBJECT_BYTES:
        raise UserError(
            f"the {job['kind']} has {size} bytes, but Kubernetes keeps no object of much more than "
            f"{_MOST_OBJECT_BYTES}: arguments and --env are repeated for every role; put them into "
            "the config or a file that the tasks read"
        )
