"""Overrides of an experiment's fields by `path=value` texts, typed by the fields' annotations."""

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tfps import python_config
from tfps.errors import UserError
from tfps.experiment.experiment import Data, Experiment, Train
from tfps.experiment.mode import MODES, Mode

_T = TypeVar("_T")
_MODE = ["mode", "name"]  # set before all others, which are fields of that mode
_BOOLEANS = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True)
class _Override:
    """A field, by its names, and the text of its value; `path` and `where` are for messages."""

    names: list[str]
    text: str
    path: str
    where: str

    def is_named_in(self, message: str) -> bool:
        return bool(re.search(rf"(?<![\w.]){re.escape(self.path)}(?!\w|\.\w)", message))

    def within(self) -> "_Override":
        """The same, seen from the field of its first name."""
        return dataclasses.replace(self, names=self.names[1:])


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
    given = [_read(override) for override in overrides]
    for each in given:
        if each.names == _MODE:
            experiment = _in_mode(experiment, each.text, each.where)
    given = [each for each in given if each.names != _MODE]
    for each in given:
        if each.names[0] == "mode" and len(each.names) > 1:
            _check_mode_field(experiment.mode, each.names[1], each.where)
    return _replaced(experiment, given)


def paths_to(name: str) -> list[str]:
    """The fields of any experiment that a name is the last of: `train.epochs` of `epochs`."""
    kinds: dict[str, list[type]] = {
        "data": [Data],
        "train": [Train],
        "mode": list(MODES.values()),
    }
    found = [".".join(_MODE)] if name == _MODE[0] else []
    for holder, some in kinds.items():
        if any(name in _fields_of(kind) for kind in some):
            found.append(f"{holder}.{name}")
    return found


def _read(override: str) -> _Override:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise UserError(f"--{override}: write it as field=value, as in --train.batch_size=64")
    path = path.strip()
    return _Override(path.split("."), text.strip(), path, f"--{override}")


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


def _replaced(holder: _T, given: Sequence[_Override], parent: str = "") -> _T:
    """A copy of a dataclass with all fields of `given` at once: its checks may compare them."""
    if not given:
        return holder
    prefix = f"{parent}." if parent else ""
    if not dataclasses.is_dataclass(holder) or isinstance(holder, type):
        raise UserError(f"{given[0].where}: {parent} has no fields to set")
    fields = _fields(holder)
    of_field: dict[str, list[_Override]] = {}
    for each in given:
        if (name := each.names[0]) not in fields:
            listed = _listed(holder, fields, prefix)
            raise UserError(f"{each.where}: {prefix}{name} is no field; the fields are {listed}")
        of_field.setdefault(name, []).append(each)
    values = {
        name: _value(getattr(holder, name), fields[name], own, prefix + name)
        for name, own in of_field.items()
    }
    try:
        return typing.cast(_T, dataclasses.replace(holder, **values))
    except UserError as error:
        named = [each.where for each in given if each.is_named_in(str(error))]
        wheres = dict.fromkeys(named or [each.where for each in given])
        raise UserError(f"{' '.join(wheres)}: {error}") from None


def _value(current: Any, kind: Any, given: Sequence[_Override], path: str) -> Any:
    """The value of the field at `path`, or the dataclass in it with other fields."""
    whole = [each for each in given if len(each.names) == 1]
    if whole and dataclasses.is_dataclass(current):
        listed = _listed(current, _fields(current), f"{path}.")
        raise UserError(f"{whole[0].where}: {path} holds fields; set one of them: {listed}")
    if within := [each.within() for each in given if len(each.names) > 1]:
        return _replaced(current, within, path)
    return _parsed(kind, whole[-1].text, f"{whole[-1].where}: {path}")


def _fields(holder: Any) -> dict[str, Any]:
    """The fields of a dataclass that can be set, with their annotations."""
    return _fields_of(type(holder))


def _fields_of(of: Any) -> dict[str, Any]:
    kinds = typing.get_type_hints(of)
    return {each.name: kinds[each.name] for each in dataclasses.fields(of) if each.init}


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
