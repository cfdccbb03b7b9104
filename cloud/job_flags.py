"""The flags that describe a job, and the one function that makes a JobSpec of them."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from cloud import command_line
from cloud.job_spec import JobSpec, Role, flag_value
from tfps import byte_size, python_config
from tfps.cluster.spec import JOBS
from tfps.errors import UserError

# Flags that set the field of the same name, unless they are left out.
_TEXTS = {
    "name": "Name of the job; default: that of the tasks' --config.",
    "module": "Module that every task runs.",
    "image": "Container image; with --package one that has Python and TensorFlow.",
    "package": "Directory of the project, whose source distribution is installed in the image.",
    "service_account": "Account that the tasks run as.",
    "network": "Network that the tasks are in.",
}
_NUMBERS = {
    "timeout_seconds": "After which the job is ended; 0: the platform's limit.",
    "queue_seconds": "How long it may wait for machines; 0: the platform's limit.",
    "restarts": "How often a task is restarted when it dies (default: 3).",
}
# Flags that set a field of one role, or with the role's name before them of that role alone.
_MACHINE = {
    "machine": "machine type, e.g. n2-standard-8",
    "cpus": "CPU cores of a task",
    "memory": "memory of a task, e.g. 16GiB",
    "disk_gb": "GB of disk of a task",
    "disk_type": "disk type, e.g. pd-ssd",
    "accelerator": "GPU and how many, e.g. NVIDIA_L4:1, or none",
}


def define(values: flags.FlagValues) -> None:
    """Defines the flags."""

    def string(name: str, text: str) -> None:
        flags.DEFINE_string(name, None, text, flag_values=values)

    string("job", "Python file with get_job(), which returns a JobSpec; flags override its fields.")
    for name, text in _TEXTS.items():
        string(name, text)
    for name, text in _NUMBERS.items():
        flags.DEFINE_integer(name, None, text, flag_values=values)
    flags.DEFINE_boolean("spot", None, "Whether machines may be taken away.", flag_values=values)
    flags.DEFINE_integer("workers", None, "Number of workers.", flag_values=values)
    flags.DEFINE_integer("ps", None, "Number of ps.", flag_values=values)
    flags.DEFINE_boolean("evaluator", None, "Adds an evaluator.", flag_values=values)
    for name, text in (("env", "NAME=value of every task"), ("label", "key=value of the job")):
        flags.DEFINE_multi_string(name, [], f"{text}; any number.", flag_values=values)
    for name, text in _MACHINE.items():
        string(name, f"Every role's {text}.")
        for job in JOBS:
            string(f"{job}_{name}", f"The {job}'s {text}.")


def build(values: flags.FlagValues, arguments: Sequence[str]) -> JobSpec:
    """Makes a JobSpec of the file that --job names, if any, and the flags, which come first."""
    base: dict[str, Any] = {"arguments": (), "roles": (), "environment": {}, "labels": {}}
    if values.job:
        spec = python_config.load(values.job, "--job", "get_job", JobSpec)
        base = {field.name: getattr(spec, field.name) for field in dataclasses.fields(JobSpec)}
    for name in (*_TEXTS, *_NUMBERS, "spot"):
        if values[name].value is not None:
            base[name] = values[name].value
    base["arguments"] = (*base["arguments"], *arguments)
    base["roles"] = _roles(values, {role.job: role for role in base["roles"]})
    base["environment"] = {**base["environment"], **command_line.pairs("--env", values.env)}
    base["labels"] = {**base["labels"], **command_line.pairs("--label", values.label)}
    return JobSpec(**{"name": _default_name(base["arguments"]), **base})


def _roles(values: flags.FlagValues, base: dict[str, Role]) -> tuple[Role, ...]:
    evaluator = None if values.evaluator is None else int(values.evaluator)
    asked = {"chief": None, "worker": values.workers, "ps": values.ps, "evaluator": evaluator}
    roles = []
    for job, replicas in asked.items():
        count = replicas if replicas is not None else base[job].replicas if job in base else 0
        if job == "chief" and not base:
            count = 1
        changes = _machine(values, job)
        if count:
            old = base.get(job, Role(job))
            roles.append(dataclasses.replace(old, replicas=count, **changes))
        elif own := [name for name in _MACHINE if values[f"{job}_{name}"].value is not None]:
            raise UserError(
                f"--{job}_{own[0]}: the job has no {job}; leave the flag out, or add a {job}"
            )
    return tuple(roles)


def _machine(values: flags.FlagValues, job: str) -> dict[str, Any]:
    """The fields of a role that flags set: the role's own flag comes before everybody's."""
    found: dict[str, Any] = {}
    for name in _MACHINE:
        own, common = values[f"{job}_{name}"].value, values[name].value
        flag = f"--{name}" if own is None else f"--{job}_{name}"
        text = common if own is None else own
        if text is None:
            continue
        if name == "memory":
            found["memory_bytes"] = byte_size.parse(text, flag)
        elif name in ("cpus", "disk_gb"):
            found[name] = command_line.positive(flag, text)
        elif name == "accelerator":
            found["accelerator"], found["accelerators"] = command_line.accelerator(flag, text)
        else:
            found[name] = text
    return found


def _default_name(arguments: Sequence[str]) -> str:
    """The last part of the config's name; JobSpec checks it as any other."""
    file = pathlib.PurePath(flag_value("config", arguments)).name
    return file.removesuffix(".py").rpartition(".")[2].lower().replace("_", "-") or "tfps"
