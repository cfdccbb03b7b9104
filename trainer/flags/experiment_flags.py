"""Flags of what to train: the config, and its fields by their dotted names."""

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
    every = _FLAGS.read_flags_from_files(list(arguments))
    field_flags.refuse_former(every)
    _fields[:], rest = field_flags.split(every)
    return rest


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
