"""What Vertex AI would refuse, or fail to serve, minutes later or in other words."""

import re

from cloud.deployment import checks, default_signature
from cloud.deployment.deployment import Deployment
from cloud.deployment.served_model import ServedModel
from cloud.deployment.server_settings import IMAGE, ServerSettings
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
        servers: What is to serve.
        base: Directory of all versions of the model, which need not be there yet.
        settings: Where.
        mend: What to do without a --machine.

    Raises:
        UserError: At the first thing that is wrong.
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


def of_batch(model: ServedModel, data: BatchData) -> ServedModel:
    """A model as it must be served for its features to be told by data of some format.

    Vertex AI makes a list of a line of CSV, an object of a row of a table, and `{"b64": …}` of a
    TFRecord and of a file. All go to the default signature.

    Args:
        model: What is to predict.
        data: What is predicted.

    Returns:
        The model, or for records that are serialized examples the model with the names of its two
        signatures exchanged.

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
            return model  # whose value each record is
        if default_signature.can_exchange(model):
            return default_signature.exchanged(model)
        checks.check_form(model, checks.RECORDS, where)
    elif form != "jsonl" or not takes_examples:  # else lines are {"b64": …}
        checks.check_form(model, checks.ROWS, where)
    return model


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
