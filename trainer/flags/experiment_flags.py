"""Flags of what to train: the config, and its fields by their dotted names."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from tfps.errors import UserError
from tfps.experiment import field_flags

if TYPE_CHECKING:  # they load TensorFlow, which must wait for the role's environment
    from tfps.experiment.experiment import Experiment
    from tfps.experiment.task import Task
    from tfps.export.loaded_model import ExportedModel

_FLAGS = flags.FLAGS
_fields: list[str] = []

flags.DEFINE_string(
    "config",
    None,
    "Config file or module, e.g. configs/census.py. Each of its fields is a flag too: "
    "--train.batch_size=512, --mode.name=sync, --task.dim=32 (docs/flags.md lists them).",
)


def take(arguments: Sequence[str]) -> list[str]:
    """Takes the flags of fields out of a command line, and out of the files of its --flagfile."""
    _fields[:], rest = field_flags.split(_FLAGS.read_flags_from_files(list(arguments)))
    for argument in rest:
        match = re.fullmatch(r"--?(\w+)(?:=.*)?", argument, re.DOTALL)
        if match and match[1] not in _FLAGS:
            _refuse_last_name(argument, match[1])
    return rest


def _refuse_last_name(argument: str, name: str) -> None:
    """Refuses a field without its path, such as --epochs=3."""
    from tfps.experiment import overrides

    if paths := overrides.paths_to(name):
        ways = " or ".join(f"--{path}=…" for path in paths)
        raise UserError(f"{argument} is no flag, but a field of the config is: write {ways}")


def fields() -> tuple[str, ...]:
    """What the flags set of the config, as `field=value`."""
    return tuple(_fields)


def experiment() -> "Experiment":
    """The config's, with what the flags set of it."""
    from tfps.experiment import overrides

    return overrides.apply(overrides.load(_FLAGS.config), _fields)


def task_of(model: "ExportedModel") -> "Task | None":
    """The config's task, which must make a model's records; None without `--config`."""
    if _FLAGS.config is None:
        if _fields:
            raise UserError(f"--{_fields[0]} sets a field of a config; give --config too")
        return None
    task = experiment().task
    schemas, labels = (
        [each.schema() for each in some] for some in (task.features(), task.labels())
    )
    model.check_schema(schemas, labels, f"--config={_FLAGS.config}")
    return task
