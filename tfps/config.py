"""Loads an experiment from a config: a Python file or module with `get_config()`."""

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tfps.errors import UserError
from tfps.experiment import Experiment

_PACKAGE = "configs"


def load(path: str) -> Experiment:
    """Loads a config and calls its `get_config()`.

    Args:
        path: A file ending in `.py`; when there is no such file, the installed module of that name
            (`configs/criteo.py` is `configs.criteo`); or a dotted module name.

    Returns:
        The experiment.

    Raises:
        UserError: If there is no such config, it has no `get_config`, it raises, or it returns
            something else.
    """
    if path.endswith(".py") and os.path.isfile(path):
        file = os.path.abspath(path)
        module = _guarded(path, file, lambda: _execute(file))
    else:
        module, file = _import(path)
    get_config = getattr(module, "get_config", None)
    if not callable(get_config):
        raise UserError(f"--config={path}: it has no function get_config(); add one")
    experiment = _guarded(path, file, get_config)
    if not isinstance(experiment, Experiment):
        raise UserError(
            f"--config={path}: get_config() returned {type(experiment).__name__}, "
            "not a tfps.experiment.Experiment"
        )
    return experiment


def _execute(file: str) -> ModuleType:
    """Runs a file as a module; it is registered, since dataclasses look their module up."""
    name = "tfps_config_" + os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import(path: str) -> tuple[ModuleType, str]:
    name = path.removesuffix(".py").replace("/", ".").lstrip(".")
    try:
        spec = importlib.util.find_spec(name) if name else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise UserError(f"--config={path}: no such file or module; {_installed()}")
    return _guarded(path, spec.origin, lambda: importlib.import_module(name)), spec.origin


def _installed() -> str:
    spec = importlib.util.find_spec(_PACKAGE)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    names = [f"{_PACKAGE}/{module.name}.py" for module in pkgutil.iter_modules(locations)]
    return f"installed configs: {', '.join(sorted(names)) or 'none'}"


def _guarded(path: str, file: str, call: Callable[[], Any]) -> Any:
    """Calls into a config, whose exceptions become one message with its file and line."""
    try:
        return call()
    except Exception as error:
        if isinstance(error, SyntaxError):
            line, reason = error.lineno, f"SyntaxError: {error.msg}"
            file = error.filename or file
        else:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == file]
            line = lines[-1] if lines else None
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            reason = f"{kind}{error}"
        at = f"{file} line {line}" if line else file
        raise UserError(f"--config={path}: {at}: {reason}") from None
