"""What a run's config says and what its model holds, for those who look at the run."""

import dataclasses
import re

from tfps.experiment.experiment import Experiment
from tfps.monitoring.events import TableSize
from tfps.store.layout import StoreLayout

# Tokens are words as well: max_tokens is no secret.
_SECRET = re.compile(
    r"secret|passw|credential|(api|access|private)_?key|(api|access|auth|bearer)_?token",
    re.IGNORECASE,
)
_HIDDEN = "(not shown)"


def settings_of(experiment: Experiment) -> dict[str, str]:
    """What an experiment says, by field; what may be a secret is not shown.

    Args:
        experiment: The experiment; of a task that is no dataclass there is nothing to say.
    """
    mode = experiment.mode
    parts = {"task": experiment.task, "data": experiment.data, "train": experiment.train}
    found = {"mode.name": mode.name if mode else ""} | {
        f"{name}.{field.name}": str(getattr(part, field.name))
        for name, part in {**parts, "mode": mode}.items()
        if dataclasses.is_dataclass(part)
        for field in dataclasses.fields(part)
    }
    return {name: _HIDDEN if _SECRET.search(name) else value for name, value in found.items()}


def without_secret(override: str) -> str:
    """`field=value`, without the value where the field's name says that it is a secret."""
    field, _, _ = override.partition("=")
    return f"{field}={_HIDDEN}" if _SECRET.search(field) else override


def tables_of(layout: StoreLayout) -> tuple[TableSize, ...]:
    """The tables of a model, in the order of their groups."""
    return tuple(
        TableSize(
            table.name,
            table.rows,
            table.dim,
            table.rows * group.row.bytes,
        )
        for group in layout.groups
        for table in group.layout.tables
    )
