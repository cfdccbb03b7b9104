"""The values of one feature in many records, as users give them and as records hold them."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import exact_values
from tfps.data.exact_values import Array, Refusal
from tfps.data.feature import Feature
from tfps.errors import UserError

_NUMBERS = "biuf"  # kinds of NumPy dtypes
Lengths = list[npt.NDArray[np.int64]]
_DTYPES = {"b": "int64", "i": "int64", "u": "int64", "f": "float32", "O": "string"}
_NO_VALUES = "V"  # the dtype's kind where nothing shows it


def plain(values: Any) -> Array | list[Any]:
    """An array of numbers, or a list of cells as they are."""
    if isinstance(values, np.ma.MaskedArray):
        if (masked := np.ma.getmaskarray(values)).any():
            raise Refusal(_first(masked), f"the value is masked; {exact_values.MISSING}")
        values = np.ma.getdata(values)
    if isinstance(values, tf.SparseTensor):
        raise Refusal((), "a SparseTensor is no column; make it dense with tf.sparse.to_dense")
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes, bytearray)):
        return list(values)
    if hasattr(values, "to_numpy") and getattr(values, "ndim", 1) == 2:
        rows: list[Any] = values.to_numpy(dtype=object).tolist()  # a frame, whose dtypes may differ
        return rows
    is_arrow = hasattr(values, "to_pylist")
    if is_arrow or (hasattr(values, "to_numpy") and not isinstance(values.dtype, np.dtype)):
        return _of_frame(values)
    if not hasattr(values, "__array__"):
        raise Refusal((), f"an object of type {type(values).__name__} is no array and no list")
    return _of_array(np.asarray(values))


def _of_array(array: Array) -> Array | list[Any]:
    if array.ndim == 0:
        raise Refusal(
            (),
            f"{array[()]} is one value, not one per record; make batches of a stream of "
            "records, with batch() of a tf.data.Dataset",
        )
    if array.dtype.kind in _NUMBERS:
        return array
    if array.dtype.kind in "OSU":
        cells: list[Any] = array.tolist()
        return cells
    shown = f"{array.flat[0]} is" if array.size else "values are"
    raise Refusal(
        (0,) * array.ndim,
        f"{shown} of dtype {array.dtype}, which no record holds; {exact_values.CONVERT}",
    )


def _of_frame(values: Any) -> Array | list[Any]:
    """The cells of a column of pyarrow, polars or pandas' own dtypes."""
    # The arrays that these make have floats where an integer is missing.
    if hasattr(values, "isna") and (missing := np.asarray(values.isna())).any():
        raise Refusal(_first(missing), f"the value is missing; {exact_values.MISSING}")
    missing_count = getattr(values, "null_count", 0)
    has_missing = missing_count() if callable(missing_count) else missing_count
    names = ("to_pylist", "to_list", "tolist")
    to_list = next(getattr(values, name) for name in names if hasattr(values, name))
    try:
        if not has_missing and (array := _array_of_frame(values)).dtype.kind in _NUMBERS:
            return array
        return list(to_list())
    except UnicodeDecodeError as error:
        place = next(number for number in range(len(values)) if not _is_text(values, number))
        why = f"the text is no UTF-8 ({error}); cast the column to pyarrow's binary"
        raise Refusal((place,), why) from None


def _is_text(values: Any, number: int) -> bool:
    """Whether a value of pyarrow's, or pandas' of it, can be had: its text may be any bytes."""
    try:
        scalar = values.iloc[number] if hasattr(values, "iloc") else values[number]
        if hasattr(scalar, "as_py"):
            scalar.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _array_of_frame(values: Any) -> Array:
    # pyarrow's type, also of a pandas column of it
    is_arrow = hasattr(values, "to_pylist")
    kind = values.type if is_arrow else getattr(values.dtype, "pyarrow_dtype", None)
    if getattr(kind, "num_fields", 0):  # lists, in which values may be missing, or text no text
        return np.empty(0, object)
    if not is_arrow:
        return np.asarray(values.to_numpy())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def flatten(cells: Sequence[Any]) -> tuple[Array, Lengths]:
    """The values of cells that are scalars, lists or arrays of one depth, end to end.

    By depth of the lists, also how many values each list holds.
    """
    lengths: Lengths = []
    try:
        while (rows := _rows(cells)) is not None:
            lengths.append(np.fromiter(map(len, rows), np.int64, len(rows)))
            joined = _joined(rows)
            if isinstance(joined, np.ndarray):
                return joined, lengths
            cells = joined
        return exact_values.array_of(list(map(_scalar, cells))), lengths
    except Refusal as refusal:
        index, *rest = refusal.place
        raise Refusal((*place_of(lengths, index), *rest), refusal.text) from None


def _rows(cells: Sequence[Any]) -> list[Any] | None:
    """The cells as arrays of numbers or lists; None where they are scalars."""
    if all(map(exact_values.kind_of, set(map(type, cells)))):
        return None
    are_lists = list(map(_is_list, cells))
    if not any(are_lists):
        return None
    if not all(are_lists):
        odd = are_lists.index(False)
        raise Refusal(
            (odd,),
            f"{cells[odd]!r} is no list, but other records hold lists; make it one, such as []",
        )
    rows = []
    for index, cell in enumerate(cells):
        try:
            rows.append(plain(cell))
        except Refusal as refusal:
            raise Refusal((index, *refusal.place), refusal.text) from None
    return rows


def _is_list(cell: Any) -> bool:
    if isinstance(cell, (str, bytes, bytearray, np.generic)):
        return False
    if hasattr(cell, "__array__"):
        return getattr(cell, "ndim", 1) != 0
    return isinstance(cell, Sequence)


def _joined(rows: list[Any]) -> Array | list[Any]:
    """The values of all rows; an array if all are arrays that differ in length alone."""
    kinds = {(row.dtype, row.shape[1:]) if isinstance(row, np.ndarray) else None for row in rows}
    if len(kinds) == 1 and None not in kinds:
        values = np.concatenate(rows)
        return values if values.size else np.empty(0, np.void)
    # Python's numbers: of two dtypes NumPy makes a third one, which may round.
    as_lists = (row.tolist() if isinstance(row, np.ndarray) else row for row in rows)
    return list(itertools.chain.from_iterable(as_lists))


def _scalar(cell: Any) -> Any:
    """A cell's value; of an array or a tensor without dimensions what it holds."""
    is_array = getattr(cell, "ndim", None) == 0 and not isinstance(cell, np.generic)
    return np.asarray(cell)[()] if is_array and cell is not np.ma.masked else cell


def place_of(lengths: Lengths, index: int) -> tuple[int, ...]:
    """Where a value is: the record, and the place in its list, and in the list in that."""
    place: list[int] = []
    for sizes in reversed(lengths):
        ends = np.cumsum(sizes)
        row = int(np.searchsorted(ends, index, side="right"))
        place.insert(0, int(index - ends[row] + sizes[row]))
        index = row
    return (index, *place)


def _first(flags: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(index) for index in np.argwhere(flags)[0])


_FLATTEN = "flatten the lists, pad them to one shape, or write several columns"


@dataclasses.dataclass(frozen=True)
class Column:
    """Values of some records."""

    name: str
    before: int  # records
    values: Array  # `[records, *shape]`, or the values of all lists end to end; texts are bytes
    bounds: npt.NDArray[np.int64] | None = None  # of lists, `[records + 1]`; None for one shape

    @classmethod
    def of(cls, values: Any, name: str, before: int = 0) -> Self:
        """The column of an array, a list, a tensor or a data frame's column."""
        try:
            if isinstance(values, tf.RaggedTensor):
                return cls(name, before, *_of_ragged_tensor(values))
            cells = plain(values)
            if isinstance(cells, np.ndarray):
                return cls(name, before, cells)
            # Equally long lists in a list are an array; in a data frame's column they are lists.
            is_array = isinstance(values, Sequence) or getattr(values, "ndim", 1) > 1
            return cls(name, before, *_of_cells(cells, is_array))
        except Refusal as refusal:
            raise _error(name, before, refusal) from None

    @property
    def records(self) -> int:
        return len(self.values) if self.bounds is None else len(self.bounds) - 1

    def part(self, first: int, end: int) -> Self:
        before = self.before + first
        if self.bounds is None:
            return dataclasses.replace(self, before=before, values=self.values[first:end])
        bounds = self.bounds[first : end + 1]
        values = self.values[bounds[0] : bounds[-1]]
        return dataclasses.replace(self, before=before, values=values, bounds=bounds - bounds[0])

    def feature(self) -> Feature:
        if self.bounds is None:
            if not self.values.size:
                self._refuse(f"no value: the shape of a record is {self.values.shape[1:]}", 0)
            return Feature(self.name, _DTYPES[self.values.dtype.kind], self.values.shape[1:])
        if self.values.dtype.kind == _NO_VALUES:
            self._refuse(
                "the first records hold empty lists, which show no dtype; give features= (or "
                f"label=) with tfps.Feature({self.name!r}, dtype, (None,))",
                0,
            )
        return Feature(self.name, _DTYPES[self.values.dtype.kind], (None,))

    def encodable(self, feature: Feature) -> Any:
        """The values as `RecordEncoder` takes them."""
        self._check_sizes(feature)
        try:
            values = _of_dtype(self.values.reshape(-1), feature)
        except Refusal as refusal:
            self._refuse(refusal.text, *self._place(*refusal.place))
        if not feature.is_ragged:
            return values.reshape(self.records, -1).T
        flat = values.tolist()
        bounds = np.arange(self.records + 1) * self._width if self.bounds is None else self.bounds
        return [[flat[first:end] for first, end in itertools.pairwise(bounds.tolist())]]

    @property
    def _width(self) -> int:
        """Values of one record, where all have one shape."""
        return math.prod(self.values.shape[1:])

    def _check_sizes(self, feature: Feature) -> None:
        shape = self.values.shape[1:]
        if feature.is_ragged:
            if self.bounds is None and len(shape) != 1:
                self._refuse(f"its shape is {shape}, but that of the feature is (None,), a list", 0)
            return
        fixed = np.full(self.records, self._width)
        sizes = fixed if self.bounds is None else np.diff(self.bounds)
        if len(odd := np.flatnonzero(sizes != feature.size)):
            self._refuse(
                f"{sizes[odd[0]]} values, but the feature's shape {feature.shape} holds "
                f"{feature.size}",
                int(odd[0]),
            )

    def _place(self, index: int) -> tuple[int, ...]:
        """The record of a value, and the place in it, by its index among all."""
        if self.bounds is None:
            return tuple(map(int, np.unravel_index(index, self.values.shape)))
        record = int(np.searchsorted(self.bounds, index, side="right")) - 1
        return record, index - int(self.bounds[record])

    def _refuse(self, text: str, *place: int) -> NoReturn:
        raise _error(self.name, self.before, Refusal(place, text))


def _error(name: str, before: int, refusal: Refusal) -> UserError:
    where = f"column {name!r}"
    if refusal.place:
        record, *rest = refusal.place
        where += f", record {before + record}" + (f" at {rest}" if rest else "")
    return UserError(f"write_dataset(): {where}: {refusal.text}")


def _of_ragged_tensor(values: tf.RaggedTensor) -> tuple[Array, npt.NDArray[np.int64]]:
    """Values and bounds of lists."""
    if values.ragged_rank > 1 or values.flat_values.shape.rank > 1:
        raise Refusal((0,), f"a list of lists; {_FLATTEN}")
    flat = plain(values.flat_values)
    if isinstance(flat, list):
        flat = exact_values.array_of(flat) if flat else np.empty(0, object)
    return flat, values.row_splits.numpy().astype(np.int64)


def _of_cells(cells: Sequence[Any], is_array: bool) -> tuple[Array, npt.NDArray[np.int64] | None]:
    """Values of one shape, or of lists with their bounds; each cell is a record's."""
    values, lengths = flatten(cells)
    if not lengths:
        return values, None
    sizes, *deeper = lengths
    for depth, below in enumerate(deeper, 1):
        if len(odd := np.flatnonzero(below != below[0])):
            place = place_of(lengths[:depth], int(odd[0]))
            raise Refusal(place, f"its lists of lists differ in length; {_FLATTEN}")
    is_deep = bool(deeper) or values.ndim > 1
    is_uniform = len(sizes) > 0 and sizes[0] > 0 and bool((sizes == sizes[0]).all())
    if is_uniform and (is_array or is_deep):
        inner = [int(below[0]) for below in deeper]
        return values.reshape(len(sizes), sizes[0], *inner, *values.shape[1:]), None
    if is_deep:
        odd_one = int(np.argmax(sizes != sizes[0]))
        raise Refusal((odd_one,), f"a list of lists, not as long as that of record 0; {_FLATTEN}")
    return values, np.concatenate([[0], np.cumsum(sizes)])


def _of_dtype(values: Array, feature: Feature) -> Array:
    """Values as a record holds them, `[n]`."""
    if values.dtype.kind == _NO_VALUES:
        return np.empty(0, object if feature.dtype == "string" else np.int64)
    is_text = values.dtype.kind == "O"
    if len(values) and is_text != (feature.dtype == "string"):
        kind = "text" if is_text else "a number"
        raise Refusal((0,), f"{values[0]} is {kind}, but the feature's dtype is {feature.dtype}")
    if feature.dtype == "int64":
        return exact_values.int64_of(values, feature.vocabulary_size)
    return exact_values.float32_of(values) if feature.dtype == "float32" else values
