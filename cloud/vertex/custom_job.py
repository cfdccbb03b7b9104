"""The request that makes a CustomJob, in the JSON of Vertex AI's REST API."""

from typing import Any

from cloud.job_spec import JobSpec, Role
from cloud.vertex.settings import VertexSettings
from tfps.cluster.spec import JOBS

_MOUNTED = "/gcs/"


def custom_job(spec: JobSpec, settings: VertexSettings) -> dict[str, Any]:
    """A CustomJob of a job that `checks.check` has passed."""
    job: dict[str, Any] = {"displayName": spec.name}
    if spec.labels:
        job["labels"] = dict(spec.labels)
    job["jobSpec"] = _job_spec(spec, settings)
    if settings.kms_key:
        job["encryptionSpec"] = {"kmsKeyName": settings.kms_key}
    return job


def _job_spec(spec: JobSpec, settings: VertexSettings) -> dict[str, Any]:
    """A CustomJobSpec: pool 0 has the chief, 1 the workers, 2 the ps, 3 the evaluator."""
    last = max(JOBS.index(role.job) for role in spec.roles)
    roles = [spec.role(job) for job in JOBS[: last + 1]]
    found: dict[str, Any] = {
        "workerPoolSpecs": [_pool(spec, role) if role else {} for role in roles],
        "scheduling": _scheduling(spec, settings),
    }
    if spec.service_account:
        found["serviceAccount"] = spec.service_account
    if spec.network:
        found["network"] = spec.network
    if spec.job_dir:
        found["baseOutputDirectory"] = {"outputUriPrefix": _uri(spec.job_dir)}
    if settings.tensorboard:
        found["tensorboard"] = settings.tensorboard
    return found


def _pool(spec: JobSpec, role: Role) -> dict[str, Any]:
    machine: dict[str, Any] = {"machineType": role.machine}
    if role.accelerator:
        machine |= {"acceleratorType": role.accelerator, "acceleratorCount": role.accelerators}
    pool: dict[str, Any] = {"machineSpec": machine, "replicaCount": str(role.replicas)}
    disk = {"bootDiskType": role.disk_type, "bootDiskSizeGb": role.disk_gb}
    if chosen := {name: value for name, value in disk.items() if value}:
        pool["diskSpec"] = chosen
    return pool | _program(spec)


def _program(spec: JobSpec) -> dict[str, Any]:
    """The same for every task."""
    arguments = list(spec.arguments)
    variables = [{"name": name, "value": value} for name, value in spec.environment.items()]
    if spec.package:
        package: dict[str, Any] = {
            "executorImageUri": spec.image,
            "packageUris": [spec.package],
            "pythonModule": spec.module,
            "args": arguments,
        }
        return {"pythonPackageSpec": package | ({"env": variables} if variables else {})}
    container: dict[str, Any] = {
        "imageUri": spec.image,
        "command": ["python", "-m", spec.module],
        "args": arguments,
    }
    return {"containerSpec": container | ({"env": variables} if variables else {})}


def _scheduling(spec: JobSpec, settings: VertexSettings) -> dict[str, Any]:
    # A lost worker must not restart the job: the chief goes on without it.
    found: dict[str, Any] = {
        "strategy": "FLEX_START" if settings.flex_start else "SPOT" if spec.spot else "STANDARD",
        "restartJobOnWorkerRestart": False,
        "disableRetries": not spec.restarts,
    }
    if spec.timeout_seconds:
        found["timeout"] = f"{spec.timeout_seconds}s"
    if spec.queue_seconds:
        found["maxWaitDuration"] = f"{spec.queue_seconds}s"
    return found


def _uri(job_dir: str) -> str:
    """The `gs://` path of a directory, which tasks may also name by where it is mounted."""
    is_mounted = job_dir.startswith(_MOUNTED)
    return f"gs://{job_dir.removeprefix(_MOUNTED)}" if is_mounted else job_dir
