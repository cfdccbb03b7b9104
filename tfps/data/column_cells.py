"""Takes what users give as a column apart: arrays, lists, tensors, columns of data frames."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import exact_values
from tfps.data.exact_values import Array, Refusal

_NUMBERS = "biuf"  # kinds of NumPy dtypes
Lengths = list[npt.NDArray[np.int64]]


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
    """The cells of a column of pyarrow, polars or pandas' own dtypes.

    The arrays that these make have floats where an integer is missing.
    """
    if hasattr(values, "isna") and (missing := np.asarray(values.isna())).any():
        raise Refusal(_first(missing), f"the value is missing; {exact_values.MISSING}")
    missing_count = getattr(values, "null_count", 0)
    if not (missing_count() if callable(missing_count) else missing_count):
        array = _array_of_frame(values)
        if array.dtype.kind in _NUMBERS:
            return array
    names = ("to_pylist", "to_list", "tolist")
    to_list = next(getattr(values, name) for name in names if hasattr(values, name))
    try:
        return list(to_list())
    except UnicodeDecodeError as error:
        place = next(number for number in range(len(values)) if not _is_text(values[number]))
        why = f"the text is no UTF-8 ({error}); cast the column to pyarrow's binary"
        raise Refusal((place,), why) from None


def _is_text(scalar: Any) -> bool:
    """Whether a value of pyarrow's can be had, in which text may be any bytes."""
    try:
        scalar.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _array_of_frame(values: Any) -> Array:
    if not hasattr(values, "to_pylist"):
        return np.asarray(values.to_numpy())
    if values.type.num_fields:  # pyarrow's lists, in which values may be missing
        return np.empty(0, object)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def flatten(cells: Sequence[Any]) -> tuple[Array, Lengths]:
    """The values in cells that are all scalars, or all lists or arrays, of any depth.

    Returns:
        The values of all cells, one after the other, and by depth of the lists that they stand in
        how many each of these holds. Arrays in the lists may give the values more dimensions.
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
