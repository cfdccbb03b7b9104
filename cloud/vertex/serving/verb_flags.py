"""The flags of `--target=vertex`, and which verbs heed them."""

import re

from absl import flags

from cloud.vertex.serving import traffic
from cloud.vertex.serving.model_version import OWN_ALIAS
from tfps.errors import UserError

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


def define(values: flags.FlagValues) -> None:
    """Defines the flags."""
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    flags.DEFINE_integer(
        "traffic",
        traffic.WHOLE,
        "Vertex AI: percents of the traffic for the version; with all, others are taken away.",
        lower_bound=1,
        upper_bound=traffic.WHOLE,
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "alias",
        [],
        "Vertex AI: a name of the version, which another version that has it loses; any number.",
        flag_values=values,
    )


def check(verb: str, values: flags.FlagValues) -> None:
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
