"""The jobs and deployments whose requests are kept, and how they are rendered."""

import contextlib
import io
import pathlib
import sys

from cloud import deploy, submit
from tests.golden.models import MODEL, in_bucket

DIRECTORY = pathlib.Path(__file__).parent
_ARGUMENTS = (
    "--config=configs/criteo.py",
    "--data.train=gs://bucket/train",
    "--data.eval=gs://bucket/eval",
    "--job_dir=gs://bucket/run",
)
_PREDICTED = (
    "--job=predict",
    "--config=configs/criteo.py",
    "--checkpoint=gs://bucket/run",
    "--data=gs://bucket/candidates",
    "--job_dir=gs://bucket/predicted",
    "--keep=categoricals",
    "--output_form=tfrecord",
)
_CLUSTER = (
    "--workers=4",
    "--ps=2",
    "--machine=type=n2-standard-8",
    "--machine=ps:type=n2-highmem-8",
)
# What a job asks for beyond the cluster.
_KINDS = {
    "cpu": (),
    "gpu": ("--machine=worker:type=g2-standard-8", "--machine=worker:accelerator=NVIDIA_L4:1"),
    "spot": ("--spot", "--timeout_seconds=86400", "--label=team=ads", "--env=TZ=UTC"),
    "evaluator": (
        "--evaluator",
        "--machine=evaluator:type=n2-highmem-16",
        "--machine=ps:disk_gb=200",
    ),
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
_SSH = (
    *("--target=ssh", "--hosts=tests/golden/hosts", "--directory=/srv/tfps"),
    *("--python=.venv/bin/python", "--first_port=23000"),
)
_KUBERNETES = ("--namespace=training", "--image=registry.example.com/tfps:1")
_PODS = (
    "--workers=4",
    "--ps=2",
    "--machine=cpus=6",
    "--machine=memory=24GiB",
    "--machine=ps:memory=100GiB",
)
_POD_KINDS = {
    **_KINDS,
    "gpu": ("--machine=worker:accelerator=nvidia-l4:1", "--service_account=trainer"),
    "evaluator": ("--evaluator", "--machine=evaluator:memory=120GiB", "--machine=ps:disk_gb=200"),
    "volume": ("--volume=datasets:/data", "--volume=jobs:/jobs", "--restarts=5"),
}
_SLURM = ("--target=slurm", "--partition=training", "--account=ads", "--nodes=4")
_SLURM_KINDS = {
    "cpu": ("--timeout_seconds=86400",),
    "gpu": ("--machine=worker:accelerator=a100:2", "--machine=type=epyc"),
    "spot": ("--partition=preemptible", "--qos=low", "--label=team=ads", "--env=TZ=UTC"),
    "evaluator": ("--evaluator", "--machine=evaluator:memory=120GiB", "--machine=ps:disk_gb=200"),
}

_ON_KUBERNETES = ("--target=kubernetes", "--namespace=serving")
_SERVED = (*_VERTEX[1:3], "--machine=type=n2-standard-4", "--max_replicas=4")
_SERVING = "us-central1-docker.pkg.dev/my-project/images/serving:2.20.0"
_ON_VERTEX = ("--target=vertex", *_SERVED, f"--image={_SERVING}")
_ACCOUNTS = ("--service_account=server@my-project.iam.gserviceaccount.com", _VERTEX[-1])
_DEPLOYMENTS = {
    "tfserving-newest": ("--target=tfserving",),
    "tfserving-versions": (
        *("--target=tfserving", "--version=3", "--version_label=stable=2", "--max_batch_size=64"),
        *("--address=0.0.0.0", "--rest_port=80", "--machine=memory=4GiB", "--machine=cpus=2"),
    ),
    "kubernetes-plain": _ON_KUBERNETES,
    "kubernetes-scaled": (
        *(
            *_ON_KUBERNETES,
            "--min_replicas=2",
            "--max_replicas=10",
            "--machine=cpus=4",
            "--machine=memory=8GiB",
        ),
        *("--allow_from=app=frontend", "--allow_namespace=team=ads", "--max_batch_size=64"),
        *("--service_account=serving", "--label=team=ads", "--version=2", "--name=adults"),
    ),
    "kubernetes-gpu": (
        *(
            *_ON_KUBERNETES,
            "--machine=accelerator=nvidia-l4:1",
            "--image=tensorflow/serving:2.20.0-gpu",
        ),
        "--volume=jobs:/jobs",
    ),
    "vertex-cpu": _ON_VERTEX,
    "vertex-gpu": (
        *(*_ON_VERTEX, f"--image={_SERVING}-gpu", "--machine=type=g2-standard-8"),
        *("--machine=accelerator=NVIDIA_L4:1", "--min_replicas=2"),
    ),
    "vertex-traffic": (*_ON_VERTEX, "--traffic=10", "--label=team=ads", *_ACCOUNTS),
}

# Flags by the name of the file that keeps the requests; behind "--" more arguments of the tasks.
CASES = {
    **{f"local-{kind}": (*_LOCAL, *_CLUSTER, *flags) for kind, flags in _KINDS.items()},
    **{f"vertex-{kind}": (*_VERTEX, *_CLUSTER, *flags) for kind, flags in _KINDS.items()},
    **{
        f"{target}-{kind}": (f"--target={target}", *_KUBERNETES, *_PODS, *flags)
        for target in ("jobset", "tfjob", "trainjob")
        for kind, flags in _POD_KINDS.items()
    },
    **{f"slurm-{kind}": (*_SLURM, *_PODS, *flags) for kind, flags in _SLURM_KINDS.items()},
    "ssh-cpu": (*_SSH, *_CLUSTER),
    "ssh-alike": (*_SSH, "--setup=true", "--env=TZ=UTC", "--timeout_seconds=86400"),
    "local-chief-works": (*_LOCAL, *_CLUSTER, "--", "--chief_works"),
    "slurm-chief-works": (*_SLURM, *_PODS, "--", "--chief_works"),
    "vertex-predict": (*_VERTEX, *_CLUSTER),
    "jobset-predict": ("--target=jobset", *_KUBERNETES, *_PODS),
    "slurm-predict": (*_SLURM, *_PODS),
    "local-predict": (*_LOCAL, *_CLUSTER),
    "vertex-package": (*_PACKAGE, *_CLUSTER),
    "vertex-alone": (*_VERTEX, "--machine=type=n2-standard-16"),
    "vertex-flex-start": (
        *(*_VERTEX, "--workers=4", "--ps=2", "--machine=type=g2-standard-8"),
        *("--machine=accelerator=NVIDIA_L4:1", "--flex_start", "--queue_seconds=3600"),
    ),
    **{f"deploy-{name}": (*flags, f"--model={MODEL}") for name, flags in _DEPLOYMENTS.items()},
}


def path(name: str) -> pathlib.Path:
    """The file that keeps the requests of a case."""
    return DIRECTORY / f"{name}.yaml"


def rendered(name: str, form: str = "yaml") -> str:
    """What the program prints for a case, as on any machine."""
    flags, _, more = " ".join(CASES[name]).partition(" -- ")
    own = ["--dry_run", f"--format={form}", *flags.split()]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if name.startswith("deploy-"):
            with in_bucket():
                code = deploy.main(["cloud.deploy", *own])
        else:
            arguments = _PREDICTED if name.endswith("-predict") else _ARGUMENTS
            code = submit.main(["cloud.submit", *own, "--", *arguments, *more.split()])
    assert code == 0, f"{name}: exit code {code}"
    return printed.getvalue().replace(sys.executable, "python")
