"""What Vertex AI would refuse, hours later or in other words."""

import re

from cloud.job_spec import JobSpec
from cloud.role import Role
from cloud.vertex import machines
from cloud.vertex.settings import VertexSettings
from tfps.errors import UserError

_IMAGE = r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?"
_ACCOUNT = r"[^@\s/]+@[^@\s/]+\.[^@\s/]+"
_NETWORK = r"projects/\d+/global/networks/[a-z0-9-]+"
_DISKS = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
_DISK_GB = (100, 64_000)
_MOST_VARIABLES = 100
_MOST_LABELS = 60  # of 64, some of which are the platform's and this program's own
_PLATFORMS_VARIABLES = ("AIP_", "CLOUD_ML_")
_RETRIES = 3
_WEEK_SECONDS = 7 * 24 * 3600


def check(spec: JobSpec, settings: VertexSettings) -> None:
    """Refuses what Vertex AI cannot run."""
    _check_image(spec)
    for role in spec.roles:
        _check_machine(role)
        _check_disk(role)
        _check_gpus_are_used(spec, role, settings)
    _check_scheduling(spec, settings)
    if settings.flex_start:
        _check_flex_start(spec)
    _check_surroundings(spec, settings)
    if settings.tensorboard and not (spec.service_account and spec.job_dir):
        missing = "--job_dir" if spec.service_account else "--service_account"
        raise UserError(f"--tensorboard needs {missing} as well; add it, or leave both out")


def check_account(account: str, settings: VertexSettings) -> None:
    """Refuses what is no service account.

    Args:
        account: Of tasks or servers; empty for the platform's default.
    """
    if account and not re.fullmatch(_ACCOUNT, account):
        raise UserError(
            f"--service_account={account}: write its e-mail address, such as "
            f"trainer@{settings.project}.iam.gserviceaccount.com"
        )


def _check_image(spec: JobSpec) -> None:
    if not spec.image:
        raise UserError(
            "--image is missing: Vertex AI starts tasks from a container image, such as "
            "us-docker.pkg.dev/PROJECT/REPOSITORY/tfps:TAG"
        )
    if not re.fullmatch(_IMAGE, spec.image):
        raise UserError(f"--image={spec.image} is no image; write REGISTRY/…/NAME:TAG")
    if spec.package and not re.fullmatch(r"gs://[^/]+/.+\.(tar\.gz|whl|zip)", spec.package):
        raise UserError(
            f"--package={spec.package}: Vertex AI installs packages from gs://; name the project's "
            "directory and give --staging_bucket"
        )


def _check_machine(role: Role) -> None:
    for field, flag in (("cpus", "cpus"), ("memory_bytes", "memory")):
        if getattr(role, field):
            raise UserError(
                f"{role.job}: Vertex AI has no --{flag}, only machine types; give "
                f"--{role.job}_machine"
            )
    if not role.machine:
        raise UserError(f"{role.job}: --{role.job}_machine or --machine is missing")
    if wrong := machines.mismatch(role.machine, role.accelerator, role.accelerators):
        raise UserError(
            f"{role.job}: {wrong}; correct --{role.job}_machine or --{role.job}_accelerator"
        )


def _check_disk(role: Role) -> None:
    if role.disk_type and role.disk_type not in _DISKS:
        raise UserError(
            f"{role.job}: --disk_type={role.disk_type}; Vertex AI has {', '.join(_DISKS)}"
        )
    least, most = _DISK_GB
    if role.disk_gb and not least <= role.disk_gb <= most:
        raise UserError(f"{role.job}: --disk_gb={role.disk_gb}; write {least} to {most}")


def _check_gpus_are_used(spec: JobSpec, role: Role, settings: VertexSettings) -> None:
    holders = ("ps",) if spec.chief_works else ("chief", "ps")
    is_idle = role.job in holders and spec.role("worker") and role.accelerator
    if is_idle and not settings.flex_start:
        mend = " or add --chief_works behind --" if role.job == "chief" else ""
        raise UserError(
            f"{role.job}: --{role.job}_accelerator={role.accelerator}:{role.accelerators}, but a "
            f"{role.job} of a cluster computes nothing on GPUs; give them to the workers alone"
            f"{mend}"
        )


def _check_scheduling(spec: JobSpec, settings: VertexSettings) -> None:
    if spec.restarts not in (0, _RETRIES):
        raise UserError(
            f"--restarts={spec.restarts}: Vertex AI retries a job up to {_RETRIES} times or never; "
            f"give {_RETRIES} or 0"
        )
    if spec.queue_seconds and not settings.flex_start:
        raise UserError(
            f"--queue_seconds={spec.queue_seconds}: Vertex AI limits the wait for machines only "
            "with --flex_start; leave it out"
        )


def _check_flex_start(spec: JobSpec) -> None:
    if spec.spot:
        raise UserError("--spot and --flex_start are two ways to get machines; give one")
    if spec.timeout_seconds > _WEEK_SECONDS:
        raise UserError(
            f"--timeout_seconds={spec.timeout_seconds}: with --flex_start a job has "
            f"{_WEEK_SECONDS} at most"
        )
    first, *others = spec.roles
    if not first.accelerator:
        raise UserError(
            "--flex_start is for machines with GPUs, in every role; give --machine and "
            "--accelerator, or leave --flex_start out"
        )
    kind = (first.machine, first.accelerator, first.accelerators, first.disk_type, first.disk_gb)
    for role in others:
        own = (role.machine, role.accelerator, role.accelerators, role.disk_type, role.disk_gb)
        if own != kind:
            raise UserError(
                f"--flex_start needs the same machine in every role, but the {first.job} has "
                f"{_shown(kind)} and the {role.job} {_shown(own)}; give --machine and "
                "--accelerator for all, or leave --flex_start out"
            )


def _shown(kind: tuple[str, str, int, str, int]) -> str:
    machine, accelerator, count, disk, size = kind
    gpus = f" with {accelerator}:{count}" if accelerator else ""
    disks = f" and a disk of {size or 'default'} GB ({disk or 'default'})" if disk or size else ""
    return f"{machine}{gpus}{disks}"


def _check_surroundings(spec: JobSpec, settings: VertexSettings) -> None:
    if len(spec.environment) > _MOST_VARIABLES:
        raise UserError(f"{len(spec.environment)} --env; Vertex AI takes {_MOST_VARIABLES} at most")
    for name in spec.environment:
        if name.startswith(_PLATFORMS_VARIABLES):
            raise UserError(
                f"--env={name}=…: Vertex AI sets variables of that name; choose another"
            )
    if len(spec.labels) > _MOST_LABELS:
        raise UserError(f"{len(spec.labels)} --label; give {_MOST_LABELS} at most")
    check_account(spec.service_account, settings)
    if spec.network and not re.fullmatch(_NETWORK, spec.network):
        raise UserError(
            f"--network={spec.network}: write projects/NUMBER/global/networks/NAME, with the "
            "project's number, not its id"
        )
    if spec.job_dir and not re.match(r"(gs://|/gcs/)[^/]+", spec.job_dir):
        raise UserError(
            f"--job_dir={spec.job_dir}: tasks on Vertex AI share no disk; write gs://BUCKET/PATH"
        )
