"""Flags that set fields of an experiment by their dotted names, such as --train.batch_size=512.

No TensorFlow is loaded: launchers look at such flags too.
"""

import re
from collections.abc import Sequence

from tfps.errors import UserError

_FIELD = r"--?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:=(.*))?"


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line: fields set, `task.dim=8` for `--task.dim=8` or `--task.dim 8`."""
    fields, others = [], []
    rest = iter(arguments)
    for argument in rest:
        match = re.fullmatch(_FIELD, argument, re.DOTALL)
        if not match:
            others.append(argument)
            continue
        value = next(rest, None) if match[2] is None else match[2]
        if value is None:
            raise UserError(f"{argument} has no value; write {argument}=VALUE")
        fields.append(f"{match[1]}={value}")
    return fields, others
