"""A request's body as JSON, with nothing in it lost: what is given twice, or too large, is kept."""

import json
import math
from typing import Any, NamedTuple

from trainer.serving.refusal import unfit

_MOST_DIGITS = 400  # of a whole number; float32 ends at 39
_MOST_SHOWN = 60  # characters of a value in a message


class HugeNumber(NamedTuple):
    """A number that no dtype holds."""

    text: str


class JsonObject(dict[str, Any]):
    """An object in which a key stood twice."""

    repeated = ""


def read(body: bytes) -> dict[str, Any]:
    """The object that a request's body holds.

    `NaN`, `Infinity` and `-Infinity` are numbers, as in TensorFlow Serving.

    Args:
        body: Bytes in UTF-8.
    """
    if not body:
        raise unfit('the body is empty; send a JSON object with "instances" or "inputs"')
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unfit(
            f"the body is not UTF-8 at byte {error.start}; give values that are not text as "
            '{"b64": "..."}'
        ) from None
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_float=_decimal, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise unfit(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise unfit("the body is nested too deeply") from None
    if not isinstance(document, dict):
        raise unfit(
            f'the body is {shown(document)}, not a JSON object with "instances" or "inputs"'
        )
    return members(document, "the body")


def members(value: dict[str, Any], where: str) -> dict[str, Any]:
    """An object's members."""
    if isinstance(value, JsonObject):
        raise unfit(f"{where} has the key {shown(value.repeated)} twice")
    return value


def shown(value: Any) -> str:
    """A value as it is told in a message, not longer than a line."""
    if isinstance(value, HugeNumber):
        text = value.text
    elif isinstance(value, list | dict) and not value:
        text = "an empty list" if isinstance(value, list) else "an empty object"
    elif isinstance(value, list):
        text = f"a list of {len(value)} elements" if len(value) > 1 else "a list of one element"
    elif isinstance(value, dict):
        text = "an object"
    else:
        text = json.dumps(value, ensure_ascii=False)
        text = text.encode(errors="backslashreplace").decode()  # half of a surrogate pair
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    kept = JsonObject(found)
    kept.repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return kept


def _decimal(text: str) -> float | HugeNumber:
    value = float(text)
    return HugeNumber(text) if math.isinf(value) else value


def _integer(text: str) -> int | HugeNumber:
    return HugeNumber(text) if len(text) > _MOST_DIGITS else int(text)
