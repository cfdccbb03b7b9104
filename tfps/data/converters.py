"""From the text of a cell to a value: what a `Field` usually needs."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar, cast

import numpy as np

_T = TypeVar("_T")


class _Converter(Generic[_T]):
    """Converts one cell, or many by `column`; a bad text is a `ValueError`."""

    def __init__(self, column: Callable[[Sequence[str]], Sequence[_T]]):
        self.column = column

    def __call__(self, text: str) -> _T:
        [value] = self.column([text])
        return value


def _numbers(texts: Sequence[str]) -> Sequence[float]:
    try:
        values = list(map(float, texts))
    except ValueError:
        raise ValueError("is not a number") from None
    if not all(map(math.isfinite, values)):
        raise ValueError("is not a finite number")
    return values


def _integers(texts: Sequence[str]) -> Sequence[int]:
    try:
        return list(map(int, texts))
    except ValueError:
        raise ValueError("is not an integer") from None


def _texts(texts: Sequence[str]) -> Sequence[bytes]:
    return [text.encode("utf-8") for text in texts]


number = _Converter(_numbers)
integer = _Converter(_integers)
text = _Converter(_texts)
BY_DTYPE: dict[str, Callable[[str], int | float | bytes]] = {
    "int64": integer,
    "float32": number,
    "string": text,
}


class optional(Generic[_T]):  # noqa: N801 - it is used like a function
    """Converter for which an empty cell, or one of `tokens`, is a missing value: None."""

    def __init__(self, convert: Callable[[str], _T], tokens: Collection[str] = ()):
        self.convert = convert
        self._tokens = frozenset({"", *tokens})

    def __call__(self, text: str) -> _T | None:
        return None if text in self._tokens else self.convert(text)

    def column(self, texts: Sequence[str]) -> Sequence[_T | None]:
        is_missing = [text in self._tokens for text in texts]
        held = [text for text, missing in zip(texts, is_missing, strict=True) if not missing]
        values = iter(convert_all(self.convert, held))
        return [None if missing else next(values) for missing in is_missing]


def convert_all(convert: Callable[[str], _T], texts: Sequence[str]) -> Sequence[_T]:
    """The values of many stripped cells."""
    column = getattr(convert, "column", None)
    return cast(Sequence[_T], column(texts)) if column else list(map(convert, texts))


def token_id(vocabulary: Sequence[str]) -> Callable[[str], int]:
    """Converter from a token to its id: 1, 2, … in the vocabulary's order, 0 for any other."""
    ids = {token: index for index, token in enumerate(vocabulary, start=1)}
    return lambda text: ids.get(text, 0)


def class_id(classes: Sequence[str]) -> Callable[[str], int]:
    """Converter from a class to its place in `classes`, from 0 on: for a label."""
    ids = {name: place for place, name in enumerate(classes)}

    def convert(text: str) -> int:
        if text not in ids:
            raise ValueError(f"is none of the classes {', '.join(map(repr, classes))}")
        return ids[text]

    return convert


class hexadecimal_id:  # noqa: N801 - it is used like a function
    """Converter from hexadecimal digits to an id in `[1, vocabulary)`; an empty cell is 0."""

    def __init__(self, vocabulary: int):
        self._ids = vocabulary - 1

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        try:
            return int(text, 16) % self._ids + 1
        except ValueError:
            raise ValueError("is not a hexadecimal number") from None

    def column(self, texts: Sequence[str]) -> Sequence[int]:
        """The ids of many cells, at once where each is empty or has eight digits."""
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        held = sizes == 8
        digits = "".join(texts)
        if not (held | (sizes == 0)).all() or not digits.isalnum():
            return list(map(self, texts))
        ids = np.zeros(len(texts), np.int64)
        ids[held] = np.frombuffer(bytes.fromhex(digits), ">u4") % np.int64(self._ids) + 1
        return cast(Sequence[int], ids)
