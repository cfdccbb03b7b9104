"""What Vertex AI would refuse, or fail to serve, minutes later or in other words."""

import re

from absl import flags

from cloud import job_spec
from cloud.deployment import served_model
from cloud.deployment.deployment import IMAGE, Deployment, ServerSettings
from cloud.vertex import checks
from cloud.vertex.checks import VertexSettings, check_account
from cloud.vertex.serving.requests import OWN_ALIAS, WHOLE
from tfps import byte_size
from tfps.errors import UserError
from tfps.storage.paths import is_cloud

_ALIAS = r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]"
_TEXTS = {
    "project": "Vertex AI: id of the project, which is billed.",
    "region": "Vertex AI: region of the servers, such as us-central1.",
    "kms_key": "Vertex AI: key, projects/P/locations/L/keyRings/R/cryptoKeys/K.",
    "vertex_endpoint": "Vertex AI: http://127.0.0.1:PORT of a stand-in for Google's APIs; needs no "
    "credentials.",
    "instances": "Vertex AI: file with records that are predicted, - for the standard input.",
    "deployed_model": "Vertex AI: id of what undeploy takes away; default: everything.",
}
# Verbs that heed a flag; any other refuses it. Flags that are not here hold for all.
_OF_VERBS = {
    "traffic": ("deploy",),
    "alias": ("deploy",),
    "instances": ("deploy", "predict"),
    "deployed_model": ("undeploy",),
}
_IMAGE = (
    r"([a-z0-9-]+-docker\.pkg\.dev/[a-z0-9.:-]+|([a-z]+\.)?gcr\.io)"
    r"(/[a-z0-9][a-z0-9._-]*)+(:[\w.-]+)?(@sha256:[0-9a-f]{64})?"
)
_FOR_CPUS = r".*:\d+\.\d+\.\d+"  # tag of a stock image without CUDA


def define(values: flags.FlagValues) -> None:
    """Defines the flags."""
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    flags.DEFINE_integer(
        "traffic",
        WHOLE,
        "Vertex AI: percents of the traffic for the version; with all, others are taken away.",
        lower_bound=1,
        upper_bound=WHOLE,
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "alias",
        [],
        "Vertex AI: a name of the version, which another version that has it loses; any number.",
        flag_values=values,
    )


def check_verb(verb: str, values: flags.FlagValues) -> None:
    """Refuses flags that a verb would pass over."""
    for flag, verbs in _OF_VERBS.items():
        if values[flag].present and verb not in verbs:
            raise UserError(f"--{flag} is of {', '.join(verbs)}; leave it out of {verb}")
    for alias in values.alias:
        if not re.fullmatch(_ALIAS, alias) or alias.startswith(OWN_ALIAS):
            raise UserError(
                f"--alias={alias}: write 2 to 128 letters, digits and -, beginning with a "
                "lowercase letter, ending with one or a digit, and not beginning with "
                f"{OWN_ALIAS}"
            )


def check(deployment: Deployment, settings: VertexSettings) -> None:
    """Refuses what Vertex AI cannot serve."""
    job_spec.check_google_labels(deployment.labels)
    needed = served_model.memory_needed(deployment.model)
    kind = checks.smallest(needed)
    hint = f"give --machine=type={kind}, or a larger one" if kind else "no machine type is so large"
    check_servers(
        deployment,
        deployment.model.base,
        settings,
        f"the model needs some {byte_size.show(needed)} of memory: {hint}",
    )
    if held := checks.memory_bytes(deployment.machine):
        served_model.check_memory(deployment.model, held, f"--machine=type={deployment.machine}")


def check_servers(
    servers: ServerSettings,
    base: str,
    settings: VertexSettings,
    hint: str = "give a machine type whose memory holds the model, such as n2-standard-4",
) -> None:
    """Refuses what Vertex AI cannot serve whatever the model is; `base` need not be there yet."""
    if not is_cloud(base):
        raise UserError(
            f"the model is in {base}, but Vertex AI reads models from gs://; copy {base} there "
            f"with `gcloud storage cp --recursive {base} gs://BUCKET/PATH`, or train with "
            "--job_dir=gs://BUCKET/PATH"
        )
    _check_image(servers, settings)
    _check_machine(servers, hint)
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
            f"--machine=accelerator={servers.accelerator}:{servers.accelerators} is of no use to "
            f"--image={image}, which has no CUDA; take a copy of {IMAGE}-gpu"
        )


def _check_machine(servers: ServerSettings, hint: str) -> None:
    if servers.cpus or servers.memory_bytes:
        flag = f"--machine={'cpus' if servers.cpus else 'memory'}=…"
        raise UserError(f"Vertex AI has no {flag}, only machine types; give --machine=type=…")
    if not servers.machine:
        raise UserError(f"--machine=type=… is missing; {hint}")
    wrong = checks.mismatch(servers.machine, servers.accelerator, servers.accelerators)
    if wrong:
        raise UserError(f"{wrong}; correct --machine")
