"""What Vertex AI would refuse, or fail to serve, minutes later or in other words."""

import re

from cloud.deployment import checks
from cloud.deployment.deployment import Deployment
from cloud.deployment.server_settings import IMAGE, ServerSettings
from cloud.vertex import machines
from cloud.vertex.checks import check_account
from cloud.vertex.settings import VertexSettings
from tfps import byte_size
from tfps.errors import UserError
from tfps.storage.paths import is_cloud

_IMAGE = (
    r"([a-z0-9-]+-docker\.pkg\.dev/[a-z0-9.:-]+|([a-z]+\.)?gcr\.io)"
    r"(/[a-z0-9][a-z0-9._-]*)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?"
)
_FOR_CPUS = r".*:\d+\.\d+\.\d+"  # tag of a stock image without CUDA


def check(deployment: Deployment, settings: VertexSettings) -> None:
    """Refuses what Vertex AI cannot serve."""
    needed = checks.memory_needed(deployment.model)
    kind = machines.smallest(needed)
    mend = f"give --machine={kind}, or a larger one" if kind else "no machine type is so large"
    check_servers(
        deployment,
        deployment.model.base,
        settings,
        f"the model needs some {byte_size.show(needed)} of memory: {mend}",
    )
    if held := machines.memory_bytes(deployment.machine):
        checks.check_memory(deployment.model, held, f"--machine={deployment.machine}")


def check_servers(
    servers: ServerSettings,
    base: str,
    settings: VertexSettings,
    mend: str = "give a machine type whose memory holds the model, such as n2-standard-4",
) -> None:
    """Refuses what Vertex AI cannot serve whatever the model is.

    Args:
        base: Directory of all versions of the model, which need not be there yet.
    """
    if not is_cloud(base):
        raise UserError(
            f"the model is in {base}, but Vertex AI reads models from gs://; copy {base} there "
            f"with `gcloud storage cp --recursive {base} gs://BUCKET/PATH`, or train with "
            "--job_dir=gs://BUCKET/PATH"
        )
    _check_image(servers, settings)
    _check_machine(servers, mend)
    _check_gpu_is_used(servers)
    if servers.max_batch_size:
        raise UserError(
            f"--max_batch_size={servers.max_batch_size}: a server on Vertex AI is told nothing "
            "of batches, and computes each request alone; leave it out"
        )
    check_account(servers.service_account, settings)


def _check_image(servers: ServerSettings, settings: VertexSettings) -> None:
    image = servers.image
    place = f"{settings.region}-docker.pkg.dev/{settings.project}/REPOSITORY"
    tag = image.rpartition("/")[2] if image.rpartition("/")[2].startswith("serving") else "serving"
    if not re.fullmatch(_IMAGE, image):
        raise UserError(
            f"--image={image}: Vertex AI takes images from Artifact Registry alone; copy "
            f"TensorFlow Serving there once (`docker pull {IMAGE}`, `docker tag {IMAGE} "
            f"{place}/{tag}`, `docker push {place}/{tag}`) and give --image={place}/{tag}"
        )


def _check_gpu_is_used(servers: ServerSettings) -> None:
    image = servers.image
    if servers.accelerator and re.fullmatch(_FOR_CPUS, image):
        raise UserError(
            f"--accelerator={servers.accelerator}:{servers.accelerators} is of no use to "
            f"--image={image}, which has no CUDA; take a copy of {IMAGE}-gpu"
        )


def _check_machine(servers: ServerSettings, mend: str) -> None:
    if servers.cpus or servers.memory_bytes:
        flag = "--cpus" if servers.cpus else "--memory"
        raise UserError(f"Vertex AI has no {flag}, only machine types; give --machine")
    if not servers.machine:
        raise UserError(f"--machine is missing; {mend}")
    wrong = machines.mismatch(servers.machine, servers.accelerator, servers.accelerators)
    if wrong:
        raise UserError(f"{wrong}; correct --machine or --accelerator")
