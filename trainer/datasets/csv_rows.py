"""Columns beside predictions as rows of a CSV file."""

import collections
import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import parquet
from tfps.errors import UserError
from trainer.datasets.record_columns import ListedColumn

_CELLS = 1 << 17  # that are text at the same time


class CsvRows:
    """Rows of text under a header; a vector is a cell per value."""

    def __init__(self, file: tf.io.gfile.GFile):
        self._file = file
        self._has_header = False

    def write(self, columns: Mapping[str, Any]) -> None:
        """Adds a line per record."""
        rows = max(1, _CELLS // sum(map(_width, columns.values())))
        count = len(next(iter(columns.values())))
        for first in range(0, count, rows):
            self._write({name: values[first : first + rows] for name, values in columns.items()})

    def _write(self, columns: Mapping[str, Any]) -> None:
        cells = [cell for name, values in columns.items() for cell in _cells(name, values)]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._has_header:
            names = [name for name, _ in cells]
            twice = [name for name, count in collections.Counter(names).items() if count > 1]
            if twice:
                raise UserError(
                    f"--keep: the output would have two columns {twice[0]!r}; keep fewer"
                )
            writer.writerow(names)
            self._has_header = True
        writer.writerows(zip(*(values for _, values in cells), strict=True))
        try:
            self._file.write(text.getvalue().encode())
        except UnicodeEncodeError as error:
            raise UserError(
                f"--keep: bytes that are no UTF-8 text ({error.object[error.start :][:20]!r}) have "
                "no place in a CSV file; leave the column out, or write to a .parquet file"
            ) from None

    def close(self) -> None:
        """Has nothing left to write."""


def _width(values: Any) -> int:
    """How many cells a column has per row."""
    return math.prod(values.shape[1:]) if isinstance(values, np.ndarray) else 1


def _cells(name: str, values: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Columns of cells that csv writes as they are, with their names."""
    if isinstance(values, np.ndarray):
        flat = values.reshape(len(values), -1)
        width = flat.shape[1]
        for index in range(width):
            yield name if width == 1 else f"{name}_{index}", _array_cells(flat[:, index])
        return
    if isinstance(values, ListedColumn):
        is_list = values.holds_lists
    else:
        is_list = parquet.is_list(values.type)
    if is_list:
        raise UserError(
            f"--keep={name}: a cell of a CSV file holds no list; leave it out, or write to a "
            ".parquet file"
        )
    if not isinstance(values, ListedColumn):
        yield name, parquet.cell_texts("--keep:", name, values)
    elif values.dtype == "float32":
        yield name, ["" if each is None else f"{each:.9g}" for each in values.values]
    else:
        yield name, values.values


def _array_cells(values: npt.NDArray[Any]) -> list[Any]:
    """Cells of an array; nine significant digits tell every float32 from its neighbours."""
    if values.dtype.kind == "f":
        texts = ("%.9g\n" * len(values) % tuple(values.tolist())).split("\n")
        return texts[:-1]
    if values.dtype == object:
        return [each.decode("utf-8", errors="replace") for each in values]
    cells: list[Any] = values.tolist()
    return cells
