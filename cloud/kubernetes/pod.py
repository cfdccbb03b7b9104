"""The pod of one task, which is the same for every kind of job on Kubernetes."""

from collections.abc import Mapping, Sequence
from typing import Any

from cloud import job_spec
from cloud.job_spec import JobSpec, Role, grace_seconds
from cloud.kubernetes import hardware
from cloud.kubernetes.volume import SCRATCH, Volume
from tfps.errors import UserError

CONTAINER = "tensorflow"  # the training operator looks for it by this name
PORT = 2222
MANAGED_BY = {"app.kubernetes.io/managed-by": "tfps"}

_PORT_NAME = "tfjob-port"  # which the training operator looks for
_BESIDE_NAME = "chief-worker"
_END_SECONDS = 15  # for a task to end after its grace
_PREEMPTIBLE = ("worker", "evaluator")  # those whose loss costs nothing that was trained
_SERVERS = ("worker", "ps")


def check(spec: JobSpec, target: str) -> None:
    """Refuses what no pod can give."""
    if not spec.image:
        raise UserError(f"--target={target} needs --image, the container image of every task")
    for name, mend in {
        "package": "build an image that holds the project (docs/kubernetes.md)",
        "network": "pods are in the network of their cluster",
        "queue_seconds": "pods wait for nodes without a limit",
    }.items():
        if getattr(spec, name):
            raise UserError(f"--target={target} takes no --{name}: {mend}; leave it out")
    for role in spec.roles:
        if role.disk_type:
            raise UserError(
                f"--target={target} takes no --disk_type ({role.job}: {role.disk_type}): a pod's "
                "scratch space is its node's; leave it out"
            )
        is_worker = role.job == "worker" or (role.job == "chief" and spec.chief_works)
        if role.accelerator and spec.tasks > 1 and not is_worker and role.job != "evaluator":
            raise UserError(
                f"{role.job}: accelerator={role.accelerator}, but the {role.job} of a cluster "
                "computes nothing on a GPU; give GPUs to the workers with --worker_accelerator"
            )
    grace_seconds(spec)


def template(
    spec: JobSpec,
    role: Role,
    volumes: Sequence[Volume],
    environment: Sequence[Mapping[str, Any]],
    files: tuple[dict[str, Any], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The template of a role's pods."""
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The task is then not process 1, which the kernel shields from SIGTERM by default.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": grace_seconds(spec) + _END_SECONDS,
        "securityContext": hardware.pod_security(),
        "containers": [_container(spec, role, volumes, environment)],
        "volumes": [
            {"name": "scratch", "emptyDir": _scratch(role)},
            *(
                {"name": f"volume-{i}", "persistentVolumeClaim": {"claimName": volume.claim}}
                for i, volume in enumerate(volumes)
            ),
        ],
    }
    if files:
        volume, mount = files
        pod["volumes"].append(volume)
        pod["containers"][0]["volumeMounts"].append(mount)
    if spec.service_account:
        pod["serviceAccountName"] = spec.service_account
    pod |= hardware.placement(role, spec.spot and role.job in _PREEMPTIBLE)
    metadata: dict[str, Any] = {"labels": {**spec.labels, **MANAGED_BY}}
    if role.job == "chief" and (port := metrics_port(spec)):
        metadata["annotations"] = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(port),
            "prometheus.io/path": "/metrics",
        }
    return {"metadata": metadata, "spec": pod}


def tensorflow_ports(spec: JobSpec) -> list[int]:
    """The ports of a job's tasks, that of the worker beside the chief last, if there is one."""
    beside = job_spec.port(spec, PORT)
    return [PORT] if beside is None else [PORT, beside]


def metrics_port(spec: JobSpec) -> int | None:
    """The port where Prometheus may ask the chief of a job; None where it may not."""
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


def _container(
    spec: JobSpec, role: Role, volumes: Sequence[Volume], environment: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    own = {"HOME": SCRATCH, "PYTHONUNBUFFERED": "1"} | dict(spec.environment)
    env = [{"name": name, "value": literal(value)} for name, value in own.items()]
    mounts = [{"name": "scratch", "mountPath": SCRATCH}]
    mounts += [{"name": f"volume-{i}", "mountPath": each.path} for i, each in enumerate(volumes)]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": spec.image,
        "command": ["python", "-m", spec.module],
        "args": [literal(argument) for argument in spec.arguments],
        "env": [*env, *environment],
        "resources": hardware.resources(role, role.disk_gb),
        "securityContext": hardware.container_security(),
        "volumeMounts": mounts,
    }
    if role.job != "evaluator" and spec.tasks > 1:
        container["ports"] = [{"name": _PORT_NAME, "containerPort": PORT}]
        if role.job == "chief" and (beside := tensorflow_ports(spec)[1:]):
            container["ports"].append({"name": _BESIDE_NAME, "containerPort": beside[0]})
    if role.job in _SERVERS:
        container |= _probes()
    return container


def _probes() -> dict[str, Any]:
    """Restarts a server that is frozen, after 90 s; it has ten minutes to begin to serve."""

    def probe(period_seconds: int, failures: int) -> dict[str, Any]:
        return {
            "exec": {"command": ["python", "-m", "cloud.probe"]},
            "timeoutSeconds": 10,
            "periodSeconds": period_seconds,
            "failureThreshold": failures,
        }

    return {"startupProbe": probe(10, 60), "livenessProbe": probe(30, 3)}


def _scratch(role: Role) -> dict[str, str]:
    return {"sizeLimit": f"{role.disk_gb}G"} if role.disk_gb else {}


def literal(text: str) -> str:
    """Text in which Kubernetes replaces no $(NAME)."""
    return text.replace("$", "$$")
