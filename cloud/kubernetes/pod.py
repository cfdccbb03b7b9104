"""Pods: what each asks of its node, mounts and may do, and the one of a job's task."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from cloud import job_spec
from cloud.deployment.deployment import ServerSettings
from cloud.job_spec import JobSpec, Role, grace_seconds
from cloud.kubernetes.kubectl import Json
from tfps.errors import UserError

CONTAINER = "tensorflow"  # the training operator looks for it by this name
PORT = 2222
MANAGED_BY = {"app.kubernetes.io/managed-by": "tfps"}
SCRATCH = "/tmp"  # noqa: S108 - of the container, on a volume of its own
USER = 1000  # of the image that `make image` builds

_PORT_NAME = "tfjob-port"  # the training operator looks for it
_SECOND_PORT_NAME = "chief-worker"
_END_SECONDS = 15  # for a task to end after its grace
_PREEMPTIBLE = ("worker", "evaluator")  # those whose loss costs nothing that was trained
_SERVERS = ("worker", "ps")
_PROBE = ("python", "-m", "cloud.probe")
_GPU = "nvidia.com/gpu"
_GKE_GPU = "cloud.google.com/gke-accelerator"
_GKE_SPOT = "cloud.google.com/gke-spot"
_QUEUE = "kueue.x-k8s.io/"  # labels of Kueue, whose queues admit jobs
Hardware = Role | ServerSettings
_UNITS = {"Gi": 1 << 30, "Mi": 1 << 20, "Ki": 1 << 10}


@dataclasses.dataclass(frozen=True)
class Volume:
    """A persistent volume claim, and the path where pods of several nodes mount it."""

    claim: str
    path: str

    @classmethod
    def parse(cls, text: str) -> "Volume":
        """Reads CLAIM:/PATH."""
        match = re.fullmatch(r"(?P<claim>[a-z0-9]([a-z0-9.-]*[a-z0-9])?):(?P<path>/[^:]+)", text)
        if not match or match["path"].rstrip("/") in ("", SCRATCH):
            raise UserError(
                f"--volume={text}: write CLAIM:/PATH, a persistent volume claim and where to "
                f"mount it, which may not be / or {SCRATCH}"
            )
        return cls(match["claim"], match["path"])

    def holds(self, path: str) -> bool:
        """Whether a path lies in the volume."""
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")


def base(grace_seconds: int) -> Json:
    """What every pod's `spec` begins with."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The program is then not process 1, which the kernel shields from SIGTERM by default.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": grace_seconds,
    }


def pod_security() -> Json:
    """A user without rights, who may write to the pod's volumes."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Json:
    """No privileges, and nothing to write to but volumes."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def resources(asked: Hardware, disk_gb: int = 0) -> Json:
    """A container's `resources`; the memory is its limit, too."""
    requests, limits = {}, {}
    if asked.cpus:
        requests["cpu"] = str(asked.cpus)
    if asked.memory_bytes:
        requests["memory"] = limits["memory"] = _quantity(asked.memory_bytes)
    if disk_gb:
        requests["ephemeral-storage"] = f"{disk_gb}G"
    if asked.accelerators:
        limits[_gpu_resource(asked)] = str(asked.accelerators)
    return _filled(requests=requests, limits=limits)


def placement(asked: Hardware, spot: bool = False, gpus: Iterable[str] = ()) -> Json:
    """The part of a pod's `spec` that names its nodes; `spot` are those that may be taken away.

    `gpus` are the resources of GPUs whose nodes it may be on without asking for one.
    """
    selector: dict[str, str] = {}
    tolerations = []
    if asked.machine:
        selector["node.kubernetes.io/instance-type"] = asked.machine
    if asked.accelerator and "/" not in asked.accelerator:
        selector[_GKE_GPU] = asked.accelerator
    if asked.accelerators:
        gpus = [_gpu_resource(asked)]
    tolerations += [{"key": each, "operator": "Exists"} for each in gpus]
    if spot:
        selector[_GKE_SPOT] = "true"
        tolerations.append({"key": _GKE_SPOT, "operator": "Equal", "value": "true"})
    tolerations = [{**each, "effect": "NoSchedule"} for each in tolerations]
    return _filled(nodeSelector=selector, tolerations=tolerations)


def mounted(volumes: Sequence[Volume], own: Json) -> tuple[list[Json], list[Json]]:
    """Volumes of a pod and mounts of its container, scratch first; `own` are further fields."""
    claims: list[Json] = []
    mounts: list[Json] = [{"name": "scratch", "mountPath": SCRATCH}]
    for i, each in enumerate(volumes):
        claim = {"claimName": each.claim, **own}
        claims.append({"name": f"volume-{i}", "persistentVolumeClaim": claim})
        mounts.append({"name": f"volume-{i}", "mountPath": each.path, **own})
    return claims, mounts


def periods(timeout_seconds: int, period_seconds: int, failures: int) -> dict[str, int]:
    """How long and how often a probe asks, and how often it may fail."""
    return {
        "timeoutSeconds": timeout_seconds,
        "periodSeconds": period_seconds,
        "failureThreshold": failures,
    }


def network_policy(metadata: Json, pods: Json, ingress: Sequence[Json]) -> Json:
    """Lets only what `ingress` names reach pods with these labels."""
    spec: Json = {"podSelector": {"matchLabels": dict(pods)}, "policyTypes": ["Ingress"]}
    spec["ingress"] = ingress
    return manifest("networking.k8s.io/v1", "NetworkPolicy", metadata, spec=spec)


def manifest(api: str, kind: str, metadata: Json, **rest: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def literal(text: str) -> str:
    """Text in which Kubernetes replaces no $(NAME)."""
    return text.replace("$", "$$")


def check(spec: JobSpec, target: str) -> None:
    """Refuses a job that asks for what no pod can give; `target` is the value of --target."""
    if not spec.image:
        raise UserError(f"--target={target} needs --image, the container image of every task")
    for name, hint in {
        "package": "build an image that holds the project (docs/kubernetes.md)",
        "network": "pods are in the network of their cluster",
        "queue_seconds": "pods wait for nodes without a limit",
    }.items():
        if getattr(spec, name):
            raise UserError(f"--target={target} takes no --{name}: {hint}; leave it out")
    for role in spec.roles:
        if role.disk_type:
            raise UserError(
                f"--target={target} takes no disk_type ({role.job}: {role.disk_type}): a pod's "
                "scratch space is its node's; leave it out"
            )
    job_spec.refuse_idle_gpus(spec)
    grace_seconds(spec)


def labels_of_parts(spec: JobSpec) -> dict[str, str]:
    """A job's labels for all but the job itself: a queue would also admit what they are on."""
    return {key: value for key, value in spec.labels.items() if not key.startswith(_QUEUE)}


def check_job_dir(spec: JobSpec, volumes: Sequence[Volume]) -> None:
    """Refuses a directory that lies in one pod alone, where nothing can be written."""
    path = spec.job_dir
    if not path or "://" in path or any(volume.holds(path) for volume in volumes):
        return
    raise UserError(
        f"--job_dir={path} would be a directory of each pod alone: name one in a bucket (gs://…), "
        "or under the path of a --volume=CLAIM:/PATH that every pod mounts"
    )


def template(
    spec: JobSpec,
    role: Role,
    volumes: Sequence[Volume],
    environment: Sequence[Json] = (),
    files: tuple[Json, Json] | None = None,
    name: str = CONTAINER,
) -> Json:
    """The PodTemplateSpec of a role's tasks, without restartPolicy.

    `environment` goes into the `env` of the container, which is called `name`; `files` is a further
    volume, and its mount.
    """
    claims, mounts = mounted(volumes, {})
    pod: Json = {
        **base(grace_seconds(spec) + _END_SECONDS),
        "securityContext": pod_security(),
        "containers": [{"name": name, **_container(spec, role, mounts, environment)}],
        "volumes": [
            {"name": "scratch", "emptyDir": _filled(sizeLimit=role.disk_gb and f"{role.disk_gb}G")},
            *claims,
        ],
    }
    if files:
        volume, mount = files
        pod["volumes"].append(volume)
        pod["containers"][0]["volumeMounts"].append(mount)
    pod |= _filled(serviceAccountName=spec.service_account)
    # Machines with GPUs take other pods only if these tolerate it, and a role may name no others.
    alike = [each for each in spec.roles if each.accelerators and each.machine == role.machine]
    gpus = sorted({_gpu_resource(each) for each in alike if role.machine})
    pod |= placement(role, spec.spot and role.job in _PREEMPTIBLE, gpus)
    metadata: Json = {"labels": {**labels_of_parts(spec), **MANAGED_BY}}
    if role.job == "chief" and (port := metrics_port(spec)):
        metadata["annotations"] = prometheus(port, "/metrics")
    return {"metadata": metadata, "spec": pod}


def prometheus(port: int, path: str) -> dict[str, str]:
    """Annotations by which Prometheus finds a pod's figures."""
    found = {"scrape": "true", "port": str(port), "path": path}
    return {f"prometheus.io/{name}": value for name, value in found.items()}


def tensorflow_ports(spec: JobSpec) -> list[int]:
    """The ports of a job's tasks; that of the chief's own worker, if there is one, is second."""
    second = job_spec.port(spec, PORT)
    return [PORT] if second is None else [PORT, second]


def metrics_port(spec: JobSpec) -> int | None:
    """The port where Prometheus may ask a job's chief; None where it may not."""
    text = spec.argument("metrics_port")
    if not text:
        return None
    taken = tensorflow_ports(spec)
    if not text.isdecimal() or not 0 < int(text) < 1 << 16 or int(text) in taken:
        raise UserError(
            f"--metrics_port={text}: name a port from 1 to 65535 that is not TensorFlow's, "
            f"{' and '.join(map(str, taken))}, as in --metrics_port=9090"
        )
    if spec.argument("metrics_address") != "0.0.0.0":  # noqa: S104 (a pod of its own)
        raise UserError(
            f"--metrics_port={text} alone answers nobody outside of the chief's pod; add "
            "--metrics_address=0.0.0.0, or leave the port out"
        )
    return int(text)


def _container(spec: JobSpec, role: Role, mounts: list[Json], environment: Sequence[Json]) -> Json:
    own = {"HOME": SCRATCH, "PYTHONUNBUFFERED": "1"} | dict(spec.environment)
    env = [{"name": name, "value": literal(value)} for name, value in own.items()]
    container: Json = {
        "image": spec.image,
        "command": ["python", "-m", spec.module],
        "args": [literal(argument) for argument in spec.arguments],
        "env": [*env, *environment],
        "resources": resources(role, role.disk_gb),
        "securityContext": container_security(),
        "volumeMounts": mounts,
    }
    if role.job != "evaluator" and spec.tasks > 1:
        names = (_PORT_NAME, _SECOND_PORT_NAME)
        ports = tensorflow_ports(spec) if role.job == "chief" else [PORT]
        container["ports"] = [
            {"name": name, "containerPort": port} for name, port in zip(names, ports, strict=False)
        ]
    if role.job in _SERVERS:  # a frozen one is restarted after 90 s; it has ten minutes to start
        for name, times in (("startupProbe", (10, 60)), ("livenessProbe", (30, 3))):
            container[name] = {"exec": {"command": list(_PROBE)}, **periods(10, *times)}
    return container


def _quantity(number: int) -> str:
    """A number of bytes as Kubernetes writes it."""
    unit = next((unit for unit, size in _UNITS.items() if number % size == 0), "")
    return f"{number // _UNITS.get(unit, 1)}{unit}"


def _gpu_resource(asked: Hardware) -> str:
    return asked.accelerator if "/" in asked.accelerator else _GPU


def _filled(**fields: Any) -> Json:
    """Those that are not empty."""
    return {name: value for name, value in fields.items() if value}
