"""Numbers and texts as records hold them, without a change: what would change one is refused."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

MISSING = "fill it in, or leave the record out: a record holds no missing values"
CONVERT = "make numbers, text or bytes of it"
_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str, bytes),
    "integer": (int, np.integer, np.bool_),
    "float": (float, np.floating),
}
Array = npt.NDArray[Any]


class Refusal(Exception):  # noqa: N818 - it is what a value meets
    """A value that no record can hold as it is."""

    def __init__(self, place: Sequence[int], text: str):
        super().__init__(text)
        self.place = tuple(place)
        self.text = text


def kind_of(of: type) -> str:
    """What values of a Python or NumPy type are: "text", "integer", "float" or ""."""
    if issubclass(of, np.timedelta64):  # NumPy derives it from integers
        return ""
    return next((kind for kind, types in _TYPES.items() if issubclass(of, types)), "")


def array_of(cells: Sequence[Any]) -> Array:
    """An array of integers, of floats, or of bytes objects; of dtype void for no cells."""
    # NumPy alone would make texts of numbers among texts and floats of large integers, and cut
    # zeros from the ends of texts.
    if not cells:
        return np.empty(0, np.void)
    kinds = {each: kind_of(each) for each in set(map(type, cells))}
    found = set(kinds.values())
    if "" in found:
        _refuse(cells, next(k for k, cell in enumerate(cells) if not kinds[type(cell)]))
    if "text" in found and len(found) > 1:
        _refuse_mixed(cells, kinds)
    if found == {"text"}:
        return _encoded(cells)
    if found == {"integer"}:
        try:
            return np.array(cells, np.int64)
        except OverflowError:
            odd = next(k for k, cell in enumerate(cells) if not -(2**63) <= int(cell) < 2**63)
            raise Refusal((odd,), _beyond_int64(cells[odd])) from None
    for index, cell in enumerate(cells):
        if kinds[type(cell)] == "integer" and not _is_float32(int(cell)):
            raise Refusal((index,), _between_float32(cell))
    return np.array(cells, np.longdouble if np.longdouble in kinds else np.float64)


def _refuse(cells: Sequence[Any], index: int) -> NoReturn:
    cell = cells[index]
    if cell is None or cell is np.ma.masked or type(cell).__name__ in ("NAType", "NaTType"):
        raise Refusal((index,), f"the value is missing ({cell}); {MISSING}")
    raise Refusal(
        (index,), f"{cell!r} is of type {type(cell).__name__}, which no record holds; {CONVERT}"
    )


def _refuse_mixed(cells: Sequence[Any], kinds: dict[type, str]) -> NoReturn:
    """Refuses text among numbers; NaN among texts is how pandas writes a missing one."""
    are_texts = [kinds[type(cell)] == "text" for cell in cells]
    for index, cell in enumerate(cells):
        if not are_texts[index] and cell != cell:
            raise Refusal((index,), f"the value is missing ({cell}); {MISSING}")
    odd = are_texts.index(not are_texts[0])
    states = ("text", "a number") if are_texts[odd] else ("a number", "text")
    raise Refusal(
        (odd,),
        f"{cells[odd]!r} is {states[0]}, but {cells[0]!r} before it is {states[1]}; make all of "
        "them one or the other",
    )


def _encoded(cells: Sequence[Any]) -> Array:
    encoded = np.empty(len(cells), object)
    for index, cell in enumerate(cells):
        try:
            encoded[index] = cell.encode() if isinstance(cell, str) else bytes(cell)
        except UnicodeEncodeError:
            raise Refusal(
                (index,),
                f"{cell!r} has half of a surrogate pair, which UTF-8 cannot write; correct the "
                "text, or give bytes",
            ) from None
    return encoded


def int64_of(values: Array, vocabulary_size: int = 0) -> Array:
    """Numbers as int64; with a vocabulary, ids that lie within it."""
    if values.dtype.kind == "f" and values.size:
        with np.errstate(invalid="ignore"):
            first = int(np.argmin(values == np.floor(values)))
        raise Refusal(
            (first,),
            f"{values[first]} is a float, but the feature's dtype is int64; fill in what is "
            'missing, and make integers with astype("int64")',
        )
    if values.dtype.kind == "u":
        _refuse_any(values > np.uint64(2**63 - 1), values, _beyond_int64)
    ids = values.astype(np.int64)
    if vocabulary_size:
        outside = (ids < 0) | (ids >= vocabulary_size)
        _refuse_any(
            outside,
            ids,
            lambda found: f"{found} lies outside the vocabulary, [0, {vocabulary_size})",
        )
    return ids


def float32_of(values: Array) -> Array:
    """Numbers as float32, fractions rounded to the nearest one."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if values.dtype.kind == "f":
        if values.dtype.itemsize <= narrow.dtype.itemsize:
            return narrow
        infinite = np.isinf(narrow) & np.isfinite(values)
        _refuse_any(infinite, values, lambda found: f"{found} does not fit float32")
        with np.errstate(invalid="ignore"):
            changed = (values == np.floor(values)) & (narrow.astype(values.dtype) != values)
    else:
        size = np.abs(values).astype(np.uint64)  # also of -2**63
        lowest_bit = np.maximum(size & (~size + np.uint64(1)), np.uint64(1))
        changed = size // lowest_bit >= np.uint64(2**24)
    _refuse_any(changed, values, _between_float32)
    return narrow


def _is_float32(whole: int) -> bool:
    whole = abs(whole)
    return whole < 2**128 and whole // (whole & -whole or 1) < 2**24


def _refuse_any(odd: Array, values: Array, why: Callable[[Any], str]) -> None:
    if odd.any():
        first = int(np.argmax(odd))
        raise Refusal((first,), why(values[first]))


def _beyond_int64(number: Any) -> str:
    return f"{number} does not fit int64; write it as text, or hash it"


def _between_float32(number: Any) -> str:
    whole = int(number)
    return (
        f"{whole} is a whole number that float32 does not hold; give integers to an int64 feature, "
        'or round it yourself with astype("float32")'
    )
