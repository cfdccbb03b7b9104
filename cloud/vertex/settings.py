"""Where on Vertex AI a job runs, and what only Vertex AI knows."""

import dataclasses
import re

from tfps.errors import UserError

_PROJECT = r"[a-z][a-z0-9.:-]{4,}[a-z0-9]"
_REGION = r"[a-z]+-[a-z]+\d+"
_BUCKET = r"gs://[a-z0-9][a-z0-9._-]+(/.*)?"
_TENSORBOARD = r"projects/[^/]+/locations/([^/]+)/tensorboards/[^/]+"
_KEY = r"projects/[^/]+/locations/([^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+"


@dataclasses.dataclass(frozen=True)
class VertexSettings:
    """The project, the region, and what goes with them.

    Attributes:
        staging_bucket: `gs://` directory for packages; empty if there are none.
        tensorboard: Resource name of a Tensorboard instance; empty for none.
        kms_key: Resource name of the key that encrypts what the job leaves on Google's disks; empty
            for Google's own.
        flex_start: Whether to wait in the queue of the Dynamic Workload Scheduler.
    """

    project: str
    region: str
    staging_bucket: str = ""
    tensorboard: str = ""
    kms_key: str = ""
    flex_start: bool = False

    def __post_init__(self) -> None:
        for name, pattern, example in (
            ("project", _PROJECT, "my-project"),
            ("region", _REGION, "us-central1"),
        ):
            value = getattr(self, name)
            if not value:
                raise UserError(f"--{name} is missing; Vertex AI needs one, such as {example}")
            if not re.fullmatch(pattern, value):
                raise UserError(f"--{name}={value}: write one such as {example}")
        if self.staging_bucket and not re.fullmatch(_BUCKET, self.staging_bucket):
            raise UserError(f"--staging_bucket={self.staging_bucket}: write gs://BUCKET/PATH")
        self._check_place("tensorboard", _TENSORBOARD, "projects/P/locations/L/tensorboards/ID")
        self._check_place("kms_key", _KEY, "projects/P/locations/L/keyRings/R/cryptoKeys/K")

    @property
    def parent(self) -> str:
        """Resource name of the place that holds the jobs."""
        return f"projects/{self.project}/locations/{self.region}"

    def _check_place(self, name: str, pattern: str, form: str) -> None:
        value = getattr(self, name)
        match = re.fullmatch(pattern, value)
        if value and not match:
            raise UserError(f"--{name}={value}: write its whole name, {form}")
        if match and match[1] != self.region:
            raise UserError(
                f"--{name}={value} is in {match[1]}, but the job in {self.region}; Vertex AI "
                "needs both in one region"
            )
