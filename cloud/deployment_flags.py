"""The flags that describe a deployment, and what is made of them, with its model or without."""

from typing import Any

from absl import flags

from cloud import command_line, machine_flag
from cloud.deployment.deployment import IMAGE, Deployment, default_name
from cloud.deployment.served_model import ServedModel
from tfps.errors import UserError

_TEXTS = {
    "model": "JOB_DIR, JOB_DIR/export or one version's directory, local or gs://.",
    "name": "Name of the deployment; default: that of the JOB_DIR.",
    "image": f"Container image with TensorFlow Serving; default: {IMAGE}.",
    "service_account": "Account that the servers run as.",
}
_NUMBERS = {
    "version": "Version of the model; default: the newest.",
    "min_replicas": "Servers that there are at least (default: 1).",
    "max_replicas": "Servers that there are at most (default: --min_replicas).",
    "max_batch_size": "Most records of several requests that a server computes together.",
}
_MACHINE = ("type", "cpus", "memory", "accelerator")
_LISTS = {
    "machine": "key=value,… of each server; any number. Keys: type (n2-standard-4), cpus, memory "
    "(4GiB; default: what the model needs), accelerator (NVIDIA_L4:1).",
    "label": "key=value of the deployment; any number.",
}
OF_DEPLOYMENT = (*_TEXTS, *_NUMBERS, *_LISTS)


def define(values: flags.FlagValues) -> None:
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, None, text, flag_values=values)
    for name, text in _NUMBERS.items():
        flags.DEFINE_integer(name, None, text, lower_bound=1, flag_values=values)
    for name, text in _LISTS.items():
        flags.DEFINE_multi_string(name, [], text, flag_values=values)
    for name, default, text in (
        ("wait_seconds", 3600.0, "How long to wait at most for what was asked for."),
        ("poll_seconds", 5.0, "Between two looks at what is waited for."),
    ):
        flags.DEFINE_float(name, default, text, lower_bound=0.0, flag_values=values)


def build(values: flags.FlagValues) -> Deployment:
    """Makes a Deployment of the flags, and of the files of the model."""
    if not values.model:
        raise UserError("--model is missing; name the JOB_DIR of a job, or what it has exported")
    model = ServedModel.read(values.model, values.version or 0)
    return Deployment(**fields(values, model.base), model=model)


def fields(values: flags.FlagValues, base: str) -> dict[str, Any]:
    """All fields but the model, which need not be there yet: those of `ServerSettings`."""
    found: dict[str, Any] = {"name": values.name or default_name(base)}
    for name in ("image", "max_batch_size", "service_account"):
        if values[name].value is not None:
            found[name] = values[name].value
    few = values.min_replicas or 1
    found |= {"min_replicas": few, "max_replicas": values.max_replicas or few}
    for text in values.machine:
        found |= machine_flag.fields("--machine=", text, _MACHINE)
    return {**found, "labels": command_line.pairs("--label", values.label)}
