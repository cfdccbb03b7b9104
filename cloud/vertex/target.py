"""Vertex AI custom training: `--target=vertex`."""

import dataclasses
import posixpath

from absl import flags

from cloud.job_spec import JobSpec
from cloud.remote_target import Patience, RemoteTarget
from cloud.sdist import Sdist
from cloud.target import Request
from cloud.vertex import checks
from cloud.vertex.custom_job import custom_job
from cloud.vertex.jobs import VertexJobs
from cloud.vertex.rest import Rest
from cloud.vertex.settings import VertexSettings
from tfps.errors import UserError

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
    """Defines the flags of this target."""
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    flags.DEFINE_boolean(
        "flex_start", False, "Queues for GPUs (Dynamic Workload Scheduler).", flag_values=values
    )


def from_flags(values: flags.FlagValues) -> "VertexTarget":
    """The target that the flags of `define_flags` describe."""
    settings = VertexSettings(
        values.project,
        values.region,
        values.staging_bucket,
        values.tensorboard,
        values.kms_key,
        values.flex_start,
    )
    patience = Patience(values.wait_seconds, values.poll_seconds)
    return VertexTarget(settings, patience, values.vertex_endpoint)


class VertexTarget(RemoteTarget):
    """Vertex AI in one project and region."""

    name = "vertex"
    has_own_machines = True

    def __init__(
        self,
        settings: VertexSettings,
        patience: Patience,
        endpoint: str = "",
    ):
        """Describes where jobs run.

        Args:
            endpoint: A stand-in for Google's APIs on this machine; empty for those themselves.
        """
        super().__init__(patience)
        self._settings = settings
        self._endpoint = endpoint.rstrip("/")
        self._sdist: Sdist | None = None

    @property
    def again(self) -> str:
        """Flags with which this program reaches the same place again."""
        place = f"--target=vertex --project={self._settings.project}"
        endpoint = f" --vertex_endpoint={self._endpoint}" if self._endpoint else ""
        return f"{place} --region={self._settings.region}{endpoint}"

    def prepare(self, spec: JobSpec) -> JobSpec:
        """Packs the project that --package names, and names the package by where it will lie."""
        if not spec.package or "://" in spec.package:
            return spec
        bucket = self._settings.staging_bucket
        if not bucket:
            raise UserError(f"--package={spec.package} needs --staging_bucket=gs://BUCKET/PATH")
        checks.check(
            dataclasses.replace(spec, package=posixpath.join(bucket, "package.tar.gz")),
            self._settings,
        )
        self._sdist = Sdist.build(spec.package)
        config = spec.argument("config")
        files = self._sdist.files()
        if config.endswith(".py") and posixpath.normpath(config) not in files:
            raise UserError(
                f"--config={config} is not in the package {self._sdist.name}; add it to a package "
                "that pyproject.toml names, such as configs"
            )
        return dataclasses.replace(spec, package=self._sdist.path(bucket))

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        """The body of the one request, a CustomJob."""
        checks.check(spec, self._settings)
        return (custom_job(spec, self._settings),)

    def sender(self) -> VertexJobs:
        """The jobs of the region."""
        rest = Rest.connect(self._endpoint, self._settings.project)
        return VertexJobs(rest, self._settings, self._endpoint)

    def stage(self, spec: JobSpec) -> None:
        """Looks where the buckets are, and uploads the package."""
        from cloud.vertex import staging  # it loads the client of Google Cloud Storage

        staging.check_region("--job_dir", spec.job_dir, self._settings.region)
        if self._sdist is not None:
            staging.check_region("--staging_bucket", spec.package, self._settings.region)
            staging.upload(self._sdist.content, spec.package)
