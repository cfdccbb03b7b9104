"""Packages that only some platforms need."""

import importlib
import importlib.util
from typing import Any

from tfps.errors import UserError


def load(module: str, extra: str) -> Any:
    """Imports a module of a package that is installed with one of tfps's extras."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _absent(error.name or module, extra) from None


def check(module: str, extra: str) -> None:
    """Refuses a machine without a package that is needed later."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # one around it is absent
        found = None
    if found is None:
        raise _absent(module, extra)


def _absent(module: str, extra: str) -> UserError:
    return UserError(
        f"{module} is not installed: run `pip install 'tfps[{extra}]'`, in a checkout "
        f"`pip install -e '.[{extra}]'`"
    )
