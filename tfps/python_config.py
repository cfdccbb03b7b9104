"""Loads a value from a config: a Python file or module with a function that returns it."""

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

import tfps
from tfps.errors import UserError

_PACKAGE = "configs"
_T = TypeVar("_T")


def load(path: str, flag: str, function: str, kind: type[_T]) -> _T:
    """Loads a config and calls its function.

    Args:
        path: A file ending in `.py`; when there is no such file, the installed module of that name
            (`configs/criteo.py` is `configs.criteo`); or a dotted module name.
    """
    where = f"{flag}={path}"
    if path.endswith(".py") and os.path.isfile(path):
        file = os.path.abspath(path)
        module = _guarded(where, file, lambda: _execute(file))
    else:
        module, file = _import(path, where)
    call = getattr(module, function, None)
    if not callable(call):
        raise UserError(f"{where}: it has no function {function}(); add one")
    value = _guarded(where, file, call)
    if not isinstance(value, kind):
        raise UserError(
            f"{where}: {function}() returned {type(value).__name__}, not a {_name(kind)}"
        )
    return value


def _name(kind: type) -> str:
    """The name by which a config can import a class."""
    module = "tfps" if kind.__name__ in tfps.__all__ else kind.__module__
    return f"{module}.{kind.__name__}"


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


def _import(path: str, where: str) -> tuple[ModuleType, str]:
    name = path.removesuffix(".py").replace("/", ".").lstrip(".")
    spec = _guarded(where, path, lambda: _spec(name))
    if spec is None or spec.origin is None:
        raise UserError(f"{where}: no such file or module; {_installed()}")
    return _guarded(where, spec.origin, lambda: importlib.import_module(name)), spec.origin


def _spec(name: str) -> ModuleSpec | None:
    """The module of a name, None without one; imports the package that it is in."""
    try:
        if package := name.rpartition(".")[0]:
            importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise  # the package imports what is not there
    try:
        return importlib.util.find_spec(name) if name else None
    except (ModuleNotFoundError, ValueError):  # it would be in a module, or is no name of one
        return None


def _installed() -> str:
    spec = importlib.util.find_spec(_PACKAGE)
    locations = list(spec.submodule_search_locations or ()) if spec else []
    modules = [each.name for each in pkgutil.iter_modules(locations) if not each.ispkg]
    names = [f"{_PACKAGE}/{name}.py" for name in modules]
    return f"installed configs: {', '.join(sorted(names)) or 'none'}"


def _moved(error: Exception) -> str:
    """What to write instead of an import from a module of tfps that is not there."""
    missing = isinstance(error, ImportError) and (error.name or "").partition(".")[0]
    if missing not in ("tfps", "cloud"):
        return ""
    return f"; write `import tfps`, which has tfps.{', tfps.'.join(tfps.__all__)}"


def _guarded(where: str, file: str, call: Callable[[], Any]) -> Any:
    """Calls into a config, whose exceptions become one message with its file and line."""
    try:
        return call()
    except Exception as error:
        if isinstance(error, SyntaxError):
            line, reason = error.lineno, f"SyntaxError: {error.msg}"
            file = error.filename or file
        else:
            frames = traceback.extract_tb(error.__traceback__)
            theirs = [x for x in frames if x.filename != __file__ and "importlib" not in x.filename]
            own = [frame for frame in theirs if frame.filename == file] or theirs
            file, line = (own[-1].filename, own[-1].lineno) if own else (file, None)
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            reason = f"{kind}{error}{_moved(error)}"
        at = f"{file} line {line}" if line else file
        raise UserError(f"{where}: {at}: {reason}") from None
