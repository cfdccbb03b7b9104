"""The values of a record in a request's JSON, and what is said of those that do not fit."""

import base64
import binascii
import json
import string
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import numpy as np

from tfps.data.feature import Feature

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1  # of int64
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_NO_SPACE = str.maketrans("", "", string.whitespace)
MOST_SHOWN = 60  # characters of a value in a message


class RefusedError(Exception):
    """A request that is not answered; the server continues."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST, allow: str = ""):
        super().__init__(message)
        self.message = message
        self.status = status
        self.allow = allow


class UnfitValueError(Exception):
    """A value that a feature cannot have; the message continues after the feature's name."""


def shown(value: Any) -> str:
    """A value for a message, not longer than a line."""
    if isinstance(value, list | dict) and not value:
        text = "an empty list" if isinstance(value, list) else "an empty object"
    elif isinstance(value, list):
        text = f"a list of {len(value)} elements" if len(value) > 1 else "a list of one element"
    elif isinstance(value, dict):
        text = "an object"
    else:
        text = json.dumps(value, ensure_ascii=False)
        text = text.encode(errors="backslashreplace").decode()  # half of a surrogate pair
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def is_encoded(value: Any) -> bool:
    """Whether a value is bytes in base64: `{"b64": "..."}`."""
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def flat_values(value: Any, feature: Feature) -> list[Any]:
    """The values of one record as ints, floats or bytes, those of a vector one after the other."""
    if not feature.is_ragged:
        leaves = _leaves(value, [size for size in feature.shape if size is not None])
    elif isinstance(value, list):
        leaves = value
    else:
        raise UnfitValueError(f"is {shown(value)}, not a list of values")
    values = [_CONVERTED[feature.dtype](leaf) for leaf in leaves]
    ids = feature.vocabulary_size
    if ids and (outside := [value for value in values if not 0 <= value < ids]):
        raise UnfitValueError(f"has the id {outside[0]}, outside its vocabulary of 0 to {ids - 1}")
    return values


def _leaves(value: Any, shape: Sequence[int]) -> list[Any]:
    """What lies in nested lists of a shape."""
    if not shape:
        if isinstance(value, list):
            raise UnfitValueError(f"is {shown(value)}, not a single value")
        return [value]
    size, *rest = shape
    if not isinstance(value, list) or len(value) != size:
        raise UnfitValueError(f"has {shown(value)} where a list of {size} is needed")
    return [leaf for each in value for leaf in _leaves(each, rest)]


def _int64(value: Any) -> int:
    if type(value) is float:
        raise UnfitValueError(f"is {shown(value)}, not a whole number written without a point")
    if type(value) is not int:
        raise UnfitValueError(f"is {shown(value)}, not a whole number")
    if not _LEAST <= value <= _MOST:
        raise UnfitValueError(f"is {shown(value)}, which does not fit into int64")
    return value


def _float32(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise UnfitValueError(f"is {shown(value)}, not a number")
    # NaN and the infinities are as they are; what would become one is refused.
    if abs(value) > _FLOAT32_MAX and abs(value) != float("inf"):
        raise UnfitValueError(f"is {shown(value)}, which is too large for float32")
    return float(value)


def bytes_of(value: Any) -> bytes:
    """What a text, or base64, stands for."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise UnfitValueError(f"is {shown(value)}, half of a surrogate pair") from None
    if not is_encoded(value):
        raise UnfitValueError(f'is {shown(value)}, neither a string nor {{"b64": "..."}}')
    text = value["b64"].translate(_NO_SPACE).rstrip("=")  # which may be left out
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise UnfitValueError(f"is {shown(value['b64'])} under b64, which is not base64") from None


_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "int64": _int64,
    "float32": _float32,
    "string": bytes_of,
}
