"""Fields of the config as flags of their own, which is how a tuning service sets them."""

import re
from collections.abc import Sequence

from tfps.errors import UserError

_FIELD = r"--?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:=(.*))?"


def expand(arguments: Sequence[str]) -> list[str]:
    """Writes `--task.dim=8`, or `--task.dim 8`, as `--set=task.dim=8`.

    Args:
        arguments: A command line without the program's name.

    Returns:
        The same with --set for every flag whose name has a dot.

    Raises:
        UserError: If such a flag has no value.
    """
    found = []
    rest = iter(arguments)
    for argument in rest:
        match = re.fullmatch(_FIELD, argument, re.DOTALL)
        if not match:
            found.append(argument)
            continue
        value = next(rest, None) if match[2] is None else match[2]
        if value is None:
            raise UserError(f"{argument} has no value; write {argument}=VALUE")
        found.append(f"--set={match[1]}={value}")
    return found
