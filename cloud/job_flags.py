"""The flags that describe a job, and the one function that makes a JobSpec of them."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from cloud import command_line, machine_flag
from cloud.job_spec import JobSpec, Role, flag_value
from tfps import python_config
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
    "timeout_seconds": "Ends the job after this many seconds; 0: the platform's limit.",
    "queue_seconds": "How long it may wait for machines; 0: the platform's limit.",
    "restarts": "How often a task is restarted when it dies (default: 3).",
}
_MACHINE = ("type", "cpus", "memory", "disk_gb", "disk_type", "accelerator")
_MACHINE_TEXT = (
    "ROLE:key=value,… of a role's machines, or key=value,… of every role's; any number. Keys: type "
    "(n2-standard-8), cpus, memory (16GiB), disk_gb, disk_type, accelerator (NVIDIA_L4:1, or none)."
)


def define(values: flags.FlagValues) -> None:
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
    flags.DEFINE_multi_string("machine", [], _MACHINE_TEXT, flag_values=values)


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
    machines = _machines(values.machine)
    asked = {"chief": None, "worker": values.workers, "ps": values.ps, "evaluator": evaluator}
    roles = []
    for job, replicas in asked.items():
        count = replicas if replicas is not None else base[job].replicas if job in base else 0
        if job == "chief" and not base:
            count = 1
        if count:
            old = base.get(job, Role(job))
            changes = {**machines.get("", {}), **machines.get(job, {})}
            roles.append(dataclasses.replace(old, replicas=count, **changes))
        elif job in machines:
            raise UserError(
                f"--machine={job}:…: the job has no {job}; leave the flag out, or add a {job}"
            )
    return tuple(roles)


def _machines(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Fields by role, with those of every role under an empty name; later flags win."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        role, colon, rest = text.partition(":")
        if not colon or "=" in role:  # a colon may also be in a value
            role, rest = "", text
        elif role not in JOBS:
            raise UserError(f"--machine={text}: {role!r} is no role; use {', '.join(JOBS)}")
        flag = f"--machine={role}:" if role else "--machine="
        found.setdefault(role, {}).update(machine_flag.fields(flag, rest, _MACHINE))
    return found


def _default_name(arguments: Sequence[str]) -> str:
    """The last part of the config's name; JobSpec checks it as any other."""
    file = pathlib.PurePath(flag_value("config", arguments)).name
    return file.removesuffix(".py").rpartition(".")[2].lower().replace("_", "-") or "tfps"
