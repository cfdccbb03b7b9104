"""Values of JSON as those of a feature's dtype."""

import base64
import binascii
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfps.data.feature import Feature
from trainer.serving.json_body import HugeNumber, JsonObject, shown

_KEY = "b64"
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1  # of int64
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_NO_SPACE = str.maketrans("", "", string.whitespace)


class UnfitValueError(Exception):
    """A value that a feature cannot have; the message goes on after the feature's name."""


def is_encoded(value: Any) -> bool:
    """Whether a value is bytes in base64: `{"b64": "..."}`."""
    return isinstance(value, dict) and list(value) == [_KEY] and isinstance(value[_KEY], str)


def flat_values(value: Any, feature: Feature) -> list[Any]:
    """The values of one record, those of a vector one after the other.

    Args:
        value: JSON: a single value for shape `()`, lists for any other; for `(None,)` a list.

    Returns:
        ints, floats or bytes, by the feature's dtype.
    """
    if feature.is_ragged:
        if not isinstance(value, list):
            raise UnfitValueError(f"is {shown(value)}, not a list of values")
        leaves = value
    else:
        leaves = _leaves(value, [size for size in feature.shape if size is not None])
    values = [_CONVERTED[feature.dtype](leaf) for leaf in leaves]
    ids = feature.vocabulary_size
    if ids and values and not (min(values) >= 0 and max(values) < ids):
        wrong = next(value for value in values if not 0 <= value < ids)
        raise UnfitValueError(f"has the id {wrong}, outside its vocabulary of 0 to {ids - 1}")
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
    if isinstance(value, HugeNumber) or (type(value) is int and not _LEAST <= value <= _MOST):
        raise UnfitValueError(f"is {shown(value)}, which does not fit into int64")
    if type(value) is float:
        raise UnfitValueError(f"is {shown(value)}, not a whole number written without a point")
    if type(value) is not int:
        raise UnfitValueError(f"is {shown(value)}, not a whole number")
    return value


def _float32(value: Any) -> float:
    if isinstance(value, HugeNumber):
        raise UnfitValueError(f"is {shown(value)}, which is too large for float32")
    if type(value) is not float and type(value) is not int:
        raise UnfitValueError(f"is {shown(value)}, not a number")
    # NaN and the infinities are as they are; what would become one is refused.
    if abs(value) > _FLOAT32_MAX and abs(value) != float("inf"):
        raise UnfitValueError(f"is {shown(value)}, which is too large for float32")
    return float(value)


def _string(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise UnfitValueError(f"is {shown(value)}, half of a surrogate pair") from None
    if isinstance(value, JsonObject) or not is_encoded(value):
        raise UnfitValueError(f'is {shown(value)}, neither a string nor {{"b64": "..."}}')
    text = value[_KEY].translate(_NO_SPACE).rstrip("=")  # which may be left out
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise UnfitValueError(f"is {shown(value[_KEY])} under b64, which is not base64") from None


_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "int64": _int64,
    "float32": _float32,
    "string": _string,
}
