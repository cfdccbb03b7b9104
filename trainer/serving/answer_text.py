"""A model's answer as JSON, laid out and with numbers written as TensorFlow Serving does it.

A number has six significant digits where these give back the float32, else nine; a whole one ends
in `.0`. `NaN`, `Infinity` and `-Infinity` stand as they are, as JavaScript and Python have them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_Arrays = Mapping[str, npt.NDArray[np.float32]]


def rows_text(outputs: _Arrays) -> str:
    """The answer to records in rows: `predictions`, one for each.

    Args:
        outputs: Arrays `[n, ...]` by name; the name of a single one is left out.
    """
    columns = {name: _rows(array) for name, array in outputs.items()}
    if len(columns) == 1:
        [only] = columns.values()
        rows = ", ".join(only)
    else:
        records = zip(*columns.values(), strict=True)
        rows = ",".join(
            "\n        {\n"
            + ",\n".join(
                f"            {_quoted(name)}: {text}"
                for name, text in zip(columns, record, strict=True)
            )
            + "\n        }"
            for record in records
        )
    return f'{{\n    "predictions": [{rows}\n    ]\n}}'


def columns_text(outputs: _Arrays) -> str:
    """The answer to records in columns: `outputs`, an array by each name."""
    if len(outputs) == 1:
        [only] = outputs.values()
        return f'{{\n    "outputs": {_column(only, 1)}\n}}'
    members = ",\n".join(
        f"        {_quoted(name)}: {_column(array, 2)}" for name, array in outputs.items()
    )
    return f'{{\n    "outputs": {{\n{members}\n    }}\n}}'


def error_text(message: str) -> str:
    """What a refused request is told."""
    return f'{{\n    "error": {_quoted(message)}\n}}'


def _rows(array: npt.NDArray[np.float32]) -> list[str]:
    """The text of each record, in one line."""
    numbers = iter(_numbers(array))
    return [_in_line(numbers, array.shape[1:]) for _ in range(len(array))]


def _in_line(numbers: Iterator[str], shape: Sequence[int]) -> str:
    if not shape:
        return next(numbers)
    return f"[{', '.join(_in_line(numbers, shape[1:]) for _ in range(shape[0]))}]"


def _column(array: npt.NDArray[np.float32], depth: int) -> str:
    """An array's text with each element in a line of its own."""
    return _in_lines(iter(_numbers(array)), array.shape, depth)


def _in_lines(numbers: Iterator[str], shape: Sequence[int], depth: int) -> str:
    if not shape:
        return next(numbers)
    if not shape[0]:
        return "[]"
    inner = "    " * (depth + 1)
    elements = ",\n".join(inner + _in_lines(numbers, shape[1:], depth + 1) for _ in range(shape[0]))
    return f"[\n{elements}\n{'    ' * depth}]"


def _numbers(array: npt.NDArray[np.float32]) -> list[str]:
    """The text of each element."""
    flat = array.reshape(-1)
    values = flat.tolist()
    short = [f"{value:.6g}" for value in values]
    with np.errstate(over="ignore"):  # the greatest ones, rounded up
        differ = np.asarray([float(text) for text in short], np.float32) != flat
    return [
        _number(f"{value:.9g}" if is_other else text)
        for value, text, is_other in zip(values, short, differ.tolist(), strict=True)
    ]


def _number(text: str) -> str:
    named = _NOT_FINITE.get(text)
    return named or (text if "." in text or "e" in text else f"{text}.0")


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _quoted(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)
