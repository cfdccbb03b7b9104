"""Where on Vertex AI a job runs, and what Vertex AI would refuse, hours later or in other words."""

import dataclasses
import re

from cloud import job_spec
from cloud.job_spec import JobSpec, Role
from tfps.errors import UserError

# Machine types that come with GPUs, and with none other: kind, GPU, and numbers of GPUs by size.
_WITH_GPUS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("a2-highgpu", "NVIDIA_TESLA_A100", {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    ("a2-megagpu", "NVIDIA_TESLA_A100", {"16g": 16}),
    ("a2-ultragpu", "NVIDIA_A100_80GB", {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    ("a3-highgpu", "NVIDIA_H100_80GB", {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    ("a3-megagpu", "NVIDIA_H100_MEGA_80GB", {"8g": 8}),
    ("a3-ultragpu", "NVIDIA_H200_141GB", {"8g": 8}),
    ("a4-highgpu", "NVIDIA_B200", {"8g": 8}),
    ("a4x-highgpu", "NVIDIA_GB200", {"4g": 4}),
    (
        "g2-standard",
        "NVIDIA_L4",
        {"4": 1, "8": 1, "12": 1, "16": 1, "24": 2, "32": 1, "48": 4, "96": 8},
    ),
    ("g4-standard", "NVIDIA_RTX_PRO_6000", {"48": 1, "96": 2, "192": 4, "384": 8}),
)
BUILT_IN: dict[str, tuple[str, int]] = {
    f"{kind}-{size}": (gpu, count)
    for kind, gpu, counts in _WITH_GPUS
    for size, count in counts.items()
}
# GPUs that are added to an n1 machine: numbers of them by the least number of its vCPUs.
ADDED: dict[str, dict[int, tuple[int, ...]]] = {
    "NVIDIA_TESLA_P4": {0: (1, 2, 4), 32: (2, 4), 64: (4,)},
    "NVIDIA_TESLA_T4": {0: (1, 2, 4), 32: (2, 4), 64: (4,)},
    "NVIDIA_TESLA_V100": {0: (1, 2, 4, 8), 16: (2, 4, 8), 32: (4, 8), 64: (8,)},
}
# By family: GiB of memory of each vCPU by class, and the numbers of vCPUs.
_FAMILIES: dict[str, tuple[dict[str, float], tuple[int, ...]]] = {
    "c2": ({"standard": 4}, (4, 8, 16, 30, 60)),
    "c2d": ({"standard": 4, "highmem": 8, "highcpu": 2}, (2, 4, 8, 16, 32, 56, 112)),
    "c3": ({"standard": 4, "highmem": 8, "highcpu": 2}, (4, 8, 22, 44, 88, 176, 192)),
    "c3d": ({"standard": 4, "highmem": 8, "highcpu": 2}, (4, 8, 16, 30, 60, 90, 180, 360)),
    "e2": ({"standard": 4, "highmem": 8, "highcpu": 1}, (2, 4, 8, 16, 32)),
    "g2": ({"standard": 4}, (4, 8, 12, 16, 24, 32, 48, 96)),
    "g4": ({"standard": 3.75}, (48, 96, 192, 384)),
    "m1": ({"ultramem": 24, "megamem": 14.9}, (40, 80, 96, 160)),
    "n1": ({"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n2": (
        {"standard": 4, "highmem": 8, "highcpu": 1},
        (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    ),
    "n2d": (
        {"standard": 4, "highmem": 8, "highcpu": 1},
        (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224),
    ),
    "n4": ({"standard": 4, "highmem": 8, "highcpu": 2}, (2, 4, 8, 16, 32, 48, 64, 80)),
}
# GiB of memory for each GPU of machines that come with them.
_GIB_OF_GPU = {
    "a2-highgpu": 85,
    "a2-megagpu": 85,
    "a2-ultragpu": 170,
    "a3-highgpu": 234,
    "a3-megagpu": 234,
    "a3-ultragpu": 369,
    "a4-highgpu": 496,
    "a4x-highgpu": 221,
}
_GROWING = (
    *("n2-standard-2", "n2-standard-4", "n2-standard-8", "n2-highmem-8", "n2-highmem-16"),
    *("n2-highmem-32", "n2-highmem-64", "n2-highmem-80", "m1-ultramem-40"),
)
_FAMILIES_WITH_GPUS = sorted({name.partition("-")[0] for name in BUILT_IN})
_MACHINE = r"([a-z][a-z0-9]*)-[a-z]+-(\d+)g?"
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
_PROJECT = r"[a-z][a-z0-9.:-]{4,}[a-z0-9]"
_REGION = r"[a-z]+-[a-z]+\d+"
_BUCKET = r"gs://[a-z0-9][a-z0-9._-]+(/.*)?"
_TENSORBOARD = r"projects/[^/]+/locations/([^/]+)/tensorboards/[^/]+"
_KEY = r"projects/[^/]+/locations/([^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+"


@dataclasses.dataclass(frozen=True)
class VertexSettings:
    """The project, the region, and what goes with them; empty for none."""

    project: str
    region: str
    staging_bucket: str = ""  # `gs://` directory for packages
    tensorboard: str = ""  # resource name of a Tensorboard instance
    kms_key: str = ""  # of what a job leaves on Google's disks; empty for Google's own
    flex_start: bool = False  # waits in the queue of the Dynamic Workload Scheduler
    endpoint: str = ""  # http://127.0.0.1:PORT of a stand-in for Google's APIs

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

    @property
    def again(self) -> str:
        """Flags with which this project's programs reach the same place again."""
        endpoint = f" --vertex_endpoint={self.endpoint}" if self.endpoint else ""
        return f"--target=vertex --project={self.project} --region={self.region}{endpoint}"

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


def mismatch(machine: str, accelerator: str, count: int) -> str:
    """What is wrong with a machine type and its GPUs, and how to fix it; empty for nothing."""
    parts = re.fullmatch(_MACHINE, machine)
    if not parts:
        return f"{machine} is no machine type; write one such as n2-standard-8"
    if machine in BUILT_IN:
        own = BUILT_IN[machine]
        asked = f"{accelerator}:{count}" if accelerator else "none"
        is_same = own == (accelerator, count)
        return "" if is_same else f"{machine} has {own[0]}:{own[1]}, not {asked}"
    if parts[1] in _FAMILIES_WITH_GPUS:
        known = [name for name in BUILT_IN if name.startswith(f"{parts[1]}-")]
        return f"{machine} is not known; machine types of its family are {', '.join(known)}"
    _, sizes = _FAMILIES.get(parts[1], ({}, ()))  # a family may be younger than this table
    if sizes and int(parts[2]) not in sizes:
        shown = ", ".join(map(str, sizes))
        return f"{machine} is not known; {parts[1]} machines have {shown} vCPUs"
    if not accelerator:
        return ""
    if accelerator not in ADDED:
        homes = [name for name, own in BUILT_IN.items() if own[0] == accelerator]
        known = sorted({own[0] for own in BUILT_IN.values()} | set(ADDED))
        hint = f"it comes with {', '.join(homes)}" if homes else f"GPUs are {', '.join(known)}"
        return f"{machine} cannot have a {accelerator}; {hint}"
    if parts[1] != "n1":
        return f"{machine} cannot have a {accelerator}; only n1 machines can"
    by_cpus = ADDED[accelerator]
    counts = by_cpus[max(least for least in by_cpus if least <= int(parts[2]))]
    if count not in counts:
        numbers = " or ".join(map(str, counts))
        return f"{machine} can have {numbers} of {accelerator}, not {count}"
    return ""


def memory_bytes(machine: str) -> int:
    """Memory of a machine type; 0 if it is not known."""
    kind, _, size = machine.rpartition("-")
    family, _, name = kind.partition("-")
    if kind in _GIB_OF_GPU:
        gib = _GIB_OF_GPU[kind] * float(size.removesuffix("g") or 0)
    else:
        of_cpu, _ = _FAMILIES.get(family, ({}, ()))
        gib = of_cpu.get(name, 0) * (int(size) if size.isdecimal() else 0)
    return int(gib * (1 << 30))


def smallest(needed: int) -> str:
    """A machine type with so many bytes of memory, no larger than it must be; empty if none has."""
    return next((name for name in _GROWING if memory_bytes(name) >= needed), "")


def check(spec: JobSpec, settings: VertexSettings) -> None:
    """Refuses what Vertex AI cannot run."""
    _check_image(spec)
    for role in spec.roles:
        _check_machine(role)
        _check_disk(role)
    _check_scheduling(spec, settings)
    if settings.flex_start:
        _check_flex_start(spec)
    else:
        job_spec.refuse_idle_gpus(spec)
    _check_surroundings(spec, settings)
    if settings.tensorboard and not (spec.service_account and spec.job_dir):
        missing = "--job_dir" if spec.service_account else "--service_account"
        raise UserError(f"--tensorboard needs {missing} as well; add it, or leave both out")


def check_account(account: str, settings: VertexSettings) -> None:
    """Refuses what is no service account; an empty one is the platform's default."""
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
                f"{role.job}: Vertex AI has no {flag}, only machine types; give "
                f"--machine={role.job}:type=…"
            )
    if not role.machine:
        raise UserError(f"{role.job}: --machine={role.job}:type=… or --machine=type=… is missing")
    if wrong := mismatch(role.machine, role.accelerator, role.accelerators):
        raise UserError(f"{role.job}: {wrong}; correct --machine={role.job}:type=…,accelerator=…")


def _check_disk(role: Role) -> None:
    if role.disk_type and role.disk_type not in _DISKS:
        raise UserError(
            f"{role.job}: disk_type={role.disk_type}; Vertex AI has {', '.join(_DISKS)}"
        )
    least, most = _DISK_GB
    if role.disk_gb and not least <= role.disk_gb <= most:
        raise UserError(f"{role.job}: disk_gb={role.disk_gb}; write {least} to {most}")


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
            "--flex_start is for machines with GPUs, in every role; give "
            "--machine=type=…,accelerator=…, or leave --flex_start out"
        )
    for role in others:
        if not job_spec.have_equal_machines(role, first):
            raise UserError(
                f"--flex_start needs the same machine in every role, but the {first.job} has "
                f"{_shown(first)} and the {role.job} {_shown(role)}; give "
                "--machine=type=…,accelerator=… for all, or leave --flex_start out"
            )


def _shown(role: Role) -> str:
    gpus = f" with {role.accelerator}:{role.accelerators}" if role.accelerator else ""
    disk, size = role.disk_type or "default", role.disk_gb or "default"
    has_disk = role.disk_type or role.disk_gb
    return f"{role.machine}{gpus}" + (f" and a disk of {size} GB ({disk})" if has_disk else "")


def _check_surroundings(spec: JobSpec, settings: VertexSettings) -> None:
    if len(spec.environment) > _MOST_VARIABLES:
        raise UserError(f"{len(spec.environment)} --env; Vertex AI takes {_MOST_VARIABLES} at most")
    for name in spec.environment:
        if name.startswith(_PLATFORMS_VARIABLES):
            raise UserError(
                f"--env={name}=…: Vertex AI sets variables of that name; choose another"
            )
    job_spec.check_google_labels(spec.labels)
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
