"""Holds arguments to their annotations: what has one meaning becomes it, the rest is refused."""

import dataclasses
import functools
import inspect
import numbers
import operator
import os
import reprlib
import types
import typing
from collections.abc import Callable, KeysView, Mapping, Sequence, ValuesView
from typing import Any, Literal, ParamSpec, TypeVar, Union

from tfps.errors import UserError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_NUMBERS = 1 << 63  # a whole number lies between minus this and this, as an int64
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "True or False"}
_SEQUENCES = (list, tuple, KeysView, ValuesView)
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 60


class _MisfitError(Exception):
    """Says that a value has no meaning as an annotation has it, and why if more is known."""


def converted(value: Any, kind: Any, where: str) -> Any:
    """A value as an annotation has it.

    Numbers and arrays of NumPy and TensorFlow become Python's, lists tuples, one value a tuple of
    one, a dict of a dataclass's fields that dataclass, and a path its text.

    Args:
        where: Stands before the value in a message, such as `train.batch_size=`.
    """
    try:
        return _converted(value, kind)
    except _MisfitError as misfit:
        why = f": {misfit}" if str(misfit) else ""
        raise UserError(f"{where}{shown(value)} must be {_described(kind)}{why}") from None


def check_fields(settings: Any, where: str) -> None:
    """Converts the fields of a dataclass in its `__post_init__`, frozen or not.

    Args:
        where: Stands before a field's name in messages, such as `train.`.
    """
    of: Any = type(settings)
    for name, kind in _hints(of).items():
        value = getattr(settings, name)
        found = converted(value, kind, f"{where}{name}=")
        if found is not value:
            object.__setattr__(settings, name, found)


def checked(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Converts the arguments of a function, or of a class where it is its `__init__`."""
    where = f"{function.__qualname__.removesuffix('.__init__')}(): "
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(signature.parameters)
            raise UserError(f"{where}{error}; its arguments are {names}") from None
        layer = given.arguments.get("kwargs", {}).get("name")
        at = f"layer {layer!r}: " if isinstance(layer, str) else where
        hints = _hints(function)
        for name, value in given.arguments.items():
            is_own = signature.parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            if is_own and name in hints:
                given.arguments[name] = converted(value, hints[name], f"{at}{name}=")
        return function(*given.args, **given.kwargs)

    # Keras looks at a layer's `__init__` without regard to what it wraps.
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def shown(value: Any) -> str:
    """A value in a few words on one line."""
    try:
        text = _SHOWN.repr(value)
    except Exception:  # a number of too many digits, or whatever a class of the user's raises
        text = f"{type(value).__name__} that cannot be shown"
    return " ".join(text.split())


@functools.lru_cache(maxsize=256)
def _hints(holder: Any) -> dict[str, Any]:
    """The annotations of a function's arguments, or of a dataclass's fields."""
    hints = typing.get_type_hints(holder)
    if dataclasses.is_dataclass(holder):
        return {field.name: hints[field.name] for field in dataclasses.fields(holder)}
    hints.pop("return", None)
    return hints


def _converted(value: Any, kind: Any) -> Any:
    form, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if form in (Union, types.UnionType):
        return _of_several(value, inner)
    if form is Literal:
        return _one_of(value, inner)
    if form in (tuple, Sequence):
        return _tuple(value, inner[0])
    if isinstance(form, type) and issubclass(form, Mapping):
        return _dict(value, *inner)
    if form is not None:  # a function, whose own arguments show when it is called
        return _instance(value, form)
    return _SIMPLE[kind](value) if kind in _SIMPLE else _instance(value, kind)


def _of_several(value: Any, kinds: tuple[Any, ...]) -> Any:
    """A value as the first of several annotations that it fits, its own type before all."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    reasons = []
    for kind in sorted(kinds, key=lambda each: each is not type(value)):
        try:
            return _converted(value, kind)
        except _MisfitError as misfit:
            reasons.append(str(misfit))
    raise _MisfitError(next(filter(None, reasons), ""))


def _one_of(value: Any, choices: tuple[Any, ...]) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise _MisfitError
    return value


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    """Several values, or one that is neither None nor a text, whose characters could be meant."""
    if isinstance(value, Mapping):
        value = _values_by_name(value)
    for name in ("as_list", "tolist"):  # of a `tf.TensorShape`, of arrays and columns
        if hasattr(value, name) and not isinstance(value, type):
            value = _called(getattr(value, name))
            break
    if isinstance(value, _SEQUENCES):
        if kind is str and type(value) is tuple and set(map(type, value)) == {str}:
            _unicode("".join(value))  # a vocabulary may be long
            return value
        several = tuple(_element(place, each, kind) for place, each in enumerate(value))
        is_same = type(value) is tuple and all(map(operator.is_, several, value))
        return typing.cast(tuple[Any, ...], value) if is_same else several
    if isinstance(value, str) and kind is str:
        raise _MisfitError(f"write ({shown(value)},) if it is one")
    if value is None:
        raise _MisfitError
    return (_converted(value, kind),)


def _element(place: int, value: Any, kind: Any) -> Any:
    try:
        return _unicode(value) if kind is str else _converted(value, kind)
    except _MisfitError as misfit:
        why = f"; {misfit}" if str(misfit) else ""
        raise _MisfitError(f"number {place} is {shown(value)}{why}") from None


def _values_by_name(values: Mapping[Any, Any]) -> list[Any]:
    """The values of a dict whose keys are their names."""
    for key, value in values.items():
        if (name := getattr(value, "name", None)) != key:
            named = f"its name is {shown(name)}" if isinstance(name, str) else "it has no name"
            raise _MisfitError(f"{shown(value)} stands under {shown(key)}, but {named}")
    return list(values.values())


def _dict(value: Any, of_keys: Any, of_values: Any) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _MisfitError
    found = {}
    for key, each in value.items():
        try:
            found[_converted(key, of_keys)] = _converted(each, of_values)
        except _MisfitError:
            raise _MisfitError(f"it has {shown(each)} under {shown(key)}") from None
    return found


def _instance(value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        names = [field.name for field in dataclasses.fields(kind)]
        needed = [
            field.name
            for field in dataclasses.fields(kind)
            if field.default is field.default_factory is dataclasses.MISSING
        ]
        if unknown := [key for key in value if key not in names]:
            raise _MisfitError(f"{shown(unknown[0])} is none of its fields {', '.join(names)}")
        if missing := [name for name in needed if name not in value]:
            raise _MisfitError(f"its field {missing[0]} is missing")
        return kind(**value)
    raise _MisfitError(f"write {example}" if (example := getattr(kind, "EXAMPLE", "")) else "")


def _whole(value: Any) -> int:
    number = _number(value)
    if isinstance(number, float):
        if not number.is_integer():
            raise _MisfitError
        number = int(number)
    if not -_NUMBERS <= number < _NUMBERS:
        raise _MisfitError("it is greater than any int64")
    return number


def _number(value: Any) -> int | float:
    if not isinstance(value, (bool, float)):
        try:
            return operator.index(value)
        except Exception:  # no whole number; TensorFlow's tensors raise errors of their own
            value = _called(value.numpy) if hasattr(value, "numpy") else value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _MisfitError
    number = _called(lambda: float(value))
    if number != number:
        raise _MisfitError("nan is no number")
    return float(number)


def _real(value: Any) -> int | float:
    number = _number(value)
    _called(lambda: float(number))  # or it has too many digits
    return number


def _text(value: Any) -> str:
    found = _unicode(_called(lambda: os.fspath(value)) if isinstance(value, os.PathLike) else value)
    if {"\0", "\n", "\r"} & set(found):  # no path, name or message continues after them
        raise _MisfitError("it has a line break or a NUL")
    return found


def _unicode(value: Any) -> str:
    if not isinstance(value, str):
        raise _MisfitError
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _MisfitError("a character of it is not Unicode") from None
    return str(value)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and str(value) in ("True", "False"):
        return bool(value)
    raise _MisfitError


def _none(value: Any) -> None:
    if value is not None:
        raise _MisfitError


def _called(function: Callable[[], Any]) -> Any:
    """What a method of a value gives, of a class that may be anybody's."""
    try:
        return function()
    except Exception:
        raise _MisfitError from None


_SIMPLE: dict[Any, Callable[[Any], Any]] = {
    int: _whole,
    float: _real,
    str: _text,
    bool: _bool,
    type(None): _none,
}


def _described(kind: Any) -> str:
    """What an annotation asks for, in words."""
    form, inner = typing.get_origin(kind), typing.get_args(kind)
    if form in (Union, types.UnionType):
        return " or ".join(_described(each) for each in inner if each is not type(None))
    if form is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if form in (tuple, Sequence):
        return f"a tuple, each {_described(inner[0])}"
    if isinstance(form, type) and issubclass(form, Mapping):
        return f"a dict from {_described(inner[0])} to {_described(inner[1])}"
    if form is not None:
        return "a function"
    return _WORDS.get(kind) or f"a {_name(kind)}"


def _name(kind: type) -> str:
    """A class as a config finds it."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
