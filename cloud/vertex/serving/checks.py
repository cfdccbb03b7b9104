"""What Vertex AI would refuse, or fail to serve, minutes later or in other words."""

import re

from cloud.deployment import checks
from cloud.deployment.deployment import IMAGE, Deployment
from cloud.deployment.served_model import ServedModel
from cloud.vertex import machines
from cloud.vertex.checks import check_account
from cloud.vertex.serving.batch_request import BatchData
from cloud.vertex.settings import VertexSettings
from tfps import byte_size
from tfps.errors import UserError
from tfps.export.schema_file import TAKES_EXAMPLES
from tfps.storage.paths import is_cloud

_IMAGE = (
    r"([a-z0-9-]+-docker\.pkg\.dev/[a-z0-9.:-]+|([a-z]+\.)?gcr\.io)"
    r"(/[a-z0-9][a-z0-9._-]*)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?"
)
_FOR_CPUS = r".*:\d+\.\d+\.\d+"  # tag of a stock image without CUDA


def check(deployment: Deployment, settings: VertexSettings) -> None:
    """Refuses what Vertex AI cannot serve.

    Args:
        deployment: What is served.
        settings: Where.

    Raises:
        UserError: At the first thing that is wrong.
    """
    model = deployment.model
    if not is_cloud(model.path):
        raise UserError(
            f"--model={model.path}: Vertex AI reads models from gs://; copy {model.base} there "
            f"with `gcloud storage cp --recursive {model.base} gs://BUCKET/PATH`, or train with "
            "--job_dir=gs://BUCKET/PATH"
        )
    _check_image(deployment, settings)
    _check_machine(deployment)
    _check_gpu_is_used(deployment)
    if deployment.max_batch_size:
        raise UserError(
            f"--max_batch_size={deployment.max_batch_size}: a server on Vertex AI is told nothing "
            "of batches, and computes each request alone; leave it out"
        )
    check_account(deployment.service_account, settings)


def check_batch(model: ServedModel, data: BatchData) -> None:
    """Refuses data in a format in which the model's features cannot be told.

    Vertex AI makes a list of a line of CSV, an object of a row of a table, and `{"b64": …}` of a
    TFRecord and of a file. All go to the default signature.

    Args:
        model: What predicts.
        data: What is predicted.

    Raises:
        UserError: If they cannot; says what to do.
    """
    form = data.instances_format
    where = f"--instances_format={form}"
    takes_examples = model.default_takes == TAKES_EXAMPLES
    if form == "csv":
        _check_list(model, where)
    elif form in ("tf-record", "tf-record-gzip", "file-list"):
        alone = model.features[0]
        if len(model.features) == 1 and (alone.dtype, alone.shape) == ("string", ()):
            return  # whose value each record is
        checks.check_form(model, checks.RECORDS, where)
    elif form == "jsonl" and takes_examples:
        return  # lines of {"b64": …}
    else:
        checks.check_form(model, checks.ROWS, where)


def _check_list(model: ServedModel, where: str) -> None:
    checks.check_form(model, checks.ROWS, where)
    alone = model.features[0]
    if len(model.features) > 1 or len(alone.shape) != 1:
        names = ", ".join(feature.name for feature in model.features[:5])
        raise UserError(
            f"{where}: Vertex AI sends a line of CSV as a list without names, which only a model "
            f"of one feature with several values takes; this one has {names}; give JSON lines "
            "(jsonl) or a table (bq://)"
        )


def _check_image(deployment: Deployment, settings: VertexSettings) -> None:
    image = deployment.image
    place = f"{settings.region}-docker.pkg.dev/{settings.project}/REPOSITORY"
    tag = image.rpartition("/")[2] if image.rpartition("/")[2].startswith("serving") else "serving"
    if not re.fullmatch(_IMAGE, image):
        raise UserError(
            f"--image={image}: Vertex AI takes images from Artifact Registry alone; copy "
            f"TensorFlow Serving there once (`docker pull {IMAGE}`, `docker tag {IMAGE} "
            f"{place}/{tag}`, `docker push {place}/{tag}`) and give --image={place}/{tag}"
        )


def _check_gpu_is_used(deployment: Deployment) -> None:
    image = deployment.image
    if deployment.accelerator and re.fullmatch(_FOR_CPUS, image):
        raise UserError(
            f"--accelerator={deployment.accelerator}:{deployment.accelerators} is of no use to "
            f"--image={image}, which has no CUDA; take a copy of {IMAGE}-gpu"
        )


def _check_machine(deployment: Deployment) -> None:
    needed = checks.memory_needed(deployment.model)
    if deployment.cpus or deployment.memory_bytes:
        flag = "--cpus" if deployment.cpus else "--memory"
        raise UserError(f"Vertex AI has no {flag}, only machine types; give --machine")
    if not deployment.machine:
        kind = machines.smallest(needed)
        mend = f"give --machine={kind}, or a larger one" if kind else "no machine type is so large"
        raise UserError(
            f"--machine is missing; the model needs some {byte_size.show(needed)} of memory: {mend}"
        )
    where = f"--machine={deployment.machine}"
    wrong = machines.mismatch(deployment.machine, deployment.accelerator, deployment.accelerators)
    if wrong:
        raise UserError(f"{wrong}; correct --machine or --accelerator")
    if held := machines.memory_bytes(deployment.machine):
        checks.check_memory(deployment.model, held, where)
