"""The jobs whose requests are kept, and how they are rendered."""

import contextlib
import io
import pathlib
import sys

from cloud import submit

DIRECTORY = pathlib.Path(__file__).parent
_ARGUMENTS = (
    "--config=configs/criteo.py",
    "--train_data=gs://bucket/train",
    "--eval_data=gs://bucket/eval",
    "--job_dir=gs://bucket/run",
)
_CLUSTER = ("--workers=4", "--ps=2", "--machine=n2-standard-8", "--ps_machine=n2-highmem-8")
# What a job asks for beyond the cluster.
_KINDS = {
    "cpu": (),
    "gpu": ("--worker_machine=g2-standard-8", "--worker_accelerator=NVIDIA_L4:1"),
    "spot": ("--spot", "--timeout_seconds=86400", "--label=team=ads", "--env=TZ=UTC"),
    "evaluator": ("--evaluator", "--evaluator_machine=n2-highmem-16", "--ps_disk_gb=200"),
}
_VERTEX = (
    "--target=vertex",
    "--project=my-project",
    "--region=us-central1",
    "--image=us-docker.pkg.dev/my-project/images/tfps:1",
    "--service_account=trainer@my-project.iam.gserviceaccount.com",
    "--network=projects/123456/global/networks/training",
    "--tensorboard=projects/my-project/locations/us-central1/tensorboards/7",
    "--kms_key=projects/my-project/locations/us-central1/keyRings/r/cryptoKeys/k",
)
_PACKAGE = (*_VERTEX, "--package=gs://bucket/staging/packages/0123/tfps-0.1.0.tar.gz")
_LOCAL = ("--target=local", "--log_dir=/runs/criteo/logs")
_KUBERNETES = ("--namespace=training", "--image=registry.example.com/tfps:1")
_PODS = ("--workers=4", "--ps=2", "--cpus=6", "--memory=24GiB", "--ps_memory=100GiB")
_POD_KINDS = {
    **_KINDS,
    "gpu": ("--worker_accelerator=nvidia-l4:1", "--service_account=trainer"),
    "evaluator": ("--evaluator", "--evaluator_memory=120GiB", "--ps_disk_gb=200"),
    "volume": ("--volume=datasets:/data", "--volume=jobs:/jobs", "--restarts=5"),
}
_SLURM = ("--target=slurm", "--partition=training", "--account=ads", "--nodes=4")
_SLURM_KINDS = {
    "cpu": ("--timeout_seconds=86400",),
    "gpu": ("--worker_accelerator=a100:2", "--machine=epyc"),
    "spot": ("--partition=preemptible", "--qos=low", "--label=team=ads", "--env=TZ=UTC"),
    "evaluator": ("--evaluator", "--evaluator_memory=120GiB", "--ps_disk_gb=200"),
}

# Flags by the name of the file that keeps the requests.
CASES = {
    **{f"local-{kind}": (*_LOCAL, *_CLUSTER, *flags) for kind, flags in _KINDS.items()},
    **{f"vertex-{kind}": (*_VERTEX, *_CLUSTER, *flags) for kind, flags in _KINDS.items()},
    **{
        f"{target}-{kind}": (f"--target={target}", *_KUBERNETES, *_PODS, *flags)
        for target in ("jobset", "tfjob")
        for kind, flags in _POD_KINDS.items()
    },
    **{f"slurm-{kind}": (*_SLURM, *_PODS, *flags) for kind, flags in _SLURM_KINDS.items()},
    "vertex-tuning": (*_VERTEX, *_CLUSTER, "--tune=configs/studies/criteo.py"),
    "vertex-package": (*_PACKAGE, *_CLUSTER),
    "vertex-alone": (*_VERTEX, "--machine=n2-standard-16"),
    "vertex-flex-start": (
        *(*_VERTEX, "--workers=4", "--ps=2", "--machine=g2-standard-8"),
        *("--accelerator=NVIDIA_L4:1", "--flex_start", "--queue_seconds=3600"),
    ),
}


def path(name: str) -> pathlib.Path:
    """The file that keeps the requests of a case."""
    return DIRECTORY / f"{name}.yaml"


def rendered(name: str, form: str = "yaml") -> str:
    """What the program prints for a case, as on any machine."""
    printed = io.StringIO()
    argv = ["cloud.submit", *CASES[name], "--dry_run", f"--format={form}", "--", *_ARGUMENTS]
    with contextlib.redirect_stdout(printed):
        code = submit.main(argv)
    assert code == 0, f"{name}: exit code {code}"
    return printed.getvalue().replace(sys.executable, "python")
