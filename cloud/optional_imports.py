"""Packages that only some platforms need."""

import importlib
from typing import Any

from tfps.errors import UserError


def load(module: str, extra: str) -> Any:
    """Imports a module of a package that is installed with one of tfps's extras."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed: run `pip install 'tfps[{extra}]'`, in a checkout "
            f"`pip install -e '.[{extra}]'`"
        ) from None
