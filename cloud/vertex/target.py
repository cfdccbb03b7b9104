"""Vertex AI custom training, `--target=vertex`: flags, and the request that makes a job."""

import dataclasses
import posixpath
from typing import Any

from absl import flags

from cloud.job_spec import JobSpec, Role
from cloud.remote_target import PollOptions, RemoteTarget, warn_of_paths_here
from cloud.sdist import Sdist
from cloud.target import JobClient, Request
from cloud.vertex import checks
from cloud.vertex.checks import VertexSettings
from tfps.cluster.spec import JOBS
from tfps.errors import UserError

_MOUNTED = "/gcs/"
_TEXTS = {
    "project": "Id of the project, which is billed.",
    "region": "Region of the job, such as us-central1.",
    "staging_bucket": "gs:// directory that --package is uploaded to.",
    "tensorboard": "Tensorboard instance: projects/P/locations/L/tensorboards/ID.",
    "kms_key": "Key for the job's disks: projects/P/locations/L/keyRings/R/cryptoKeys/K.",
    "vertex_endpoint": "http://127.0.0.1:PORT of a stand-in for Google's APIs; needs no "
    "credentials.",
}


def define_flags(values: flags.FlagValues) -> None:
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    flags.DEFINE_boolean(
        "flex_start", False, "Queues for GPUs (Dynamic Workload Scheduler).", flag_values=values
    )


def from_flags(values: flags.FlagValues) -> "VertexTarget":
    settings = VertexSettings(
        values.project,
        values.region,
        values.staging_bucket,
        values.tensorboard,
        values.kms_key,
        values.flex_start,
        values.vertex_endpoint,
    )
    return VertexTarget(PollOptions(values.wait_seconds, values.poll_seconds), settings)


@dataclasses.dataclass
class VertexTarget(RemoteTarget):
    """Vertex AI in one project and region."""

    name = "vertex"
    has_own_machines = True

    settings: VertexSettings
    _sdist: Sdist | None = dataclasses.field(default=None, init=False)

    @property
    def again(self) -> str:
        return self.settings.again

    def prepare(self, spec: JobSpec) -> JobSpec:
        """Packs the project that --package names, and names the package by where it will lie."""
        if not spec.package or "://" in spec.package:
            return spec
        bucket = self.settings.staging_bucket
        if not bucket:
            raise UserError(f"--package={spec.package} needs --staging_bucket=gs://BUCKET/PATH")
        checks.check(
            dataclasses.replace(spec, package=posixpath.join(bucket, "package.tar.gz")),
            self.settings,
        )
        self._sdist = Sdist.build(spec.package)
        config = spec.argument("config")
        files = self._sdist.files()
        is_in_bucket = config.startswith(_MOUNTED)
        is_file = config.endswith(".py") and not is_in_bucket
        if is_file and posixpath.normpath(config) not in files:
            raise UserError(
                f"--config={config} is not in the package {self._sdist.name}; add it to a package "
                "that pyproject.toml names, such as configs"
            )
        return dataclasses.replace(spec, package=self._sdist.path(bucket))

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        checks.check(spec, self.settings)
        return (custom_job(spec, self.settings),)

    def sender(self) -> JobClient:
        from cloud.vertex.jobs import VertexJobs  # it loads Google's clients

        return VertexJobs(self.settings)

    def stage(self, spec: JobSpec) -> None:
        """Looks where the buckets are, and uploads the package."""
        from cloud.vertex import client, jobs  # they load Google's clients

        warn_of_paths_here(spec, lambda path: path.startswith(_MOUNTED))
        client.check_bucket("--job_dir", spec.job_dir, self.settings.region)
        if self._sdist is not None:
            client.check_bucket("--staging_bucket", spec.package, self.settings.region)
            jobs.upload(self._sdist.content, spec.package)


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
    given: dict[str, Any] = {"args": list(spec.arguments)}
    if spec.environment:
        given["env"] = [{"name": name, "value": value} for name, value in spec.environment.items()]
    if spec.package:
        package = {
            "executorImageUri": spec.image,
            "packageUris": [spec.package],
            "pythonModule": spec.module,
        }
        return {"pythonPackageSpec": package | given}
    container = {"imageUri": spec.image, "command": ["python", "-m", spec.module]}
    return {"containerSpec": container | given}


def _scheduling(spec: JobSpec, settings: VertexSettings) -> dict[str, Any]:
    # A lost worker must not restart the job: the chief continues without it.
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
