"""Overrides of an experiment's fields by `path=value` texts, typed by the fields' annotations."""

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tfps import python_config
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.experiment.mode import MODES, Mode

_T = TypeVar("_T")
_MODE = ["mode", "name"]  # set before all others, which are fields of that mode
_BOOLEANS = {"true": True, "false": False}


def load(path: str) -> Experiment:
    """Loads a config and calls its `get_config()`."""
    return python_config.load(path, "--config", "get_config", Experiment)


def _integer(text: str) -> int:
    """A whole number, also as 64.0: tuning services write numbers so."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


_PARSERS: dict[Any, Callable[[str], Any]] = {
    int: _integer,
    float: float,
    str: str,
    bool: lambda text: _BOOLEANS[text.lower()],
}


def apply(experiment: Experiment, overrides: Sequence[str]) -> Experiment:
    """Replaces fields of an experiment.

    Args:
        overrides: Texts such as `train.batch_size=1024`, `task.mlp=64,32`, `task.limit=none`; a
            later one of the same field wins. `mode.name=sync` makes the mode another one.
    """
    parts = [_parts(override) for override in overrides]
    for names, text, where in sorted(parts, key=lambda each: each[0] != _MODE):
        if names == _MODE:
            experiment = _in_mode(experiment, text, where)
            continue
        if names[0] == "mode" and len(names) > 1:
            _check_mode_field(experiment.mode, names[1], where)
        experiment = _replaced(experiment, names, text, where)
    return experiment


def _parts(override: str) -> tuple[list[str], str, str]:
    """The names of a field, its value, and how a message names the flag."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise UserError(f"--{override}: write it as field=value, as in --train.batch_size=64")
    return path.strip().split("."), text.strip(), f"--{override}"


def _in_mode(experiment: Experiment, name: str, where: str) -> Experiment:
    """The experiment in the mode of a name; settings of the config stay if they are the mode's."""
    if name and name not in MODES:
        raise UserError(f"{where}: mode.name must be one of {', '.join(MODES)}")
    if experiment.mode and experiment.mode.name == name:
        return experiment
    return dataclasses.replace(experiment, mode=MODES[name]() if name else None)


def _check_mode_field(mode: Mode | None, field: str, where: str) -> None:
    """Refuses a field that the mode lacks."""
    own = {name: [each.name for each in dataclasses.fields(of)] for name, of in MODES.items()}
    if mode and field in own[mode.name]:
        return
    having = [name for name, fields in own.items() if field in fields]
    if not having:
        every = dict.fromkeys(each for fields in own.values() for each in fields)
        listed = ", ".join(f"mode.{each}" for each in ("name", *every))
        raise UserError(f"{where}: mode.{field} is no field; the fields are {listed}")
    ways = " or ".join(f"--mode.name={name}" for name in having)
    if not mode:
        raise UserError(f"{where}: {field} is a setting of one mode; name it too: {ways}")
    settings = ", ".join(own[mode.name]) or "none"
    raise UserError(
        f"{where}: mode {mode.name} has no {field} (its settings: {settings}); leave it out, or "
        f"use {ways}"
    )


def _replaced(holder: _T, names: Sequence[str], text: str, where: str, parent: str = "") -> _T:
    """A copy of a dataclass in which the field at the path `names` has the value of `text`."""
    prefix = f"{parent}." if parent else ""
    if not dataclasses.is_dataclass(holder) or isinstance(holder, type):
        raise UserError(f"{where}: {parent} has no fields to set")
    kinds = typing.get_type_hints(type(holder))
    fields = {field.name: kinds[field.name] for field in dataclasses.fields(holder) if field.init}
    name = names[0]
    if name not in fields:
        raise UserError(
            f"{where}: {prefix}{name} is no field; the fields are {_listed(holder, fields, prefix)}"
        )
    current = getattr(holder, name)
    if len(names) > 1:
        value = _replaced(current, names[1:], text, where, prefix + name)
    elif dataclasses.is_dataclass(current):
        inner = typing.get_type_hints(type(current))
        inner = {field.name: inner[field.name] for field in dataclasses.fields(current)}
        raise UserError(
            f"{where}: {prefix}{name} holds fields; set one of them: "
            f"{_listed(current, inner, f'{prefix}{name}.')}"
        )
    else:
        value = _parsed(fields[name], text, f"{where}: {prefix}{name}")
    try:
        return typing.cast(_T, dataclasses.replace(holder, **{name: value}))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _parsed(kind: Any, text: str, where: str) -> Any:
    """The value of a text by an annotation."""
    if _optional(kind):
        if text.lower() == "none":
            return None
        return _parsed(_optional(kind), text, where)
    if typing.get_origin(kind) is tuple and typing.get_args(kind)[1:] == (...,):
        element = typing.get_args(kind)[0]
        items = text.strip("()").rstrip(",")
        return tuple(_parsed(element, item.strip(), where) for item in items.split(",") if items)
    if kind not in _PARSERS:
        raise UserError(
            f"{where} is of type {_name(kind)}, which cannot be set by a flag; edit the config"
        )
    try:
        return _PARSERS[kind](text)
    except (ValueError, KeyError):
        raise UserError(f"{where} must be {_name(kind)}, not {text!r}") from None


def _optional(kind: Any) -> Any:
    """The T of `T | None`; None for any other annotation."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return None
    members = [member for member in typing.get_args(kind) if member is not types.NoneType]
    return members[0] if len(members) == 1 else None


def _name(kind: Any) -> str:
    if kind is bool:
        return "bool (true or false)"
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def _listed(holder: Any, fields: dict[str, Any], prefix: str) -> str:
    """Every field with its type and current value; a nested dataclass only by its name."""
    texts = []
    for name, kind in fields.items():
        current = getattr(holder, name)
        if dataclasses.is_dataclass(current) or kind == Mode | None:
            texts.append(f"{prefix}{name}.*")
        else:
            texts.append(f"{prefix}{name}: {_name(kind)} = {current!r}")
    return ", ".join(texts)
