"""The values of a feature in many records, as one array."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data.feature import Feature


def batch_of(feature: Feature, columns: Sequence[Sequence[Any]]) -> Any:
    """A batch as a model takes it.

    Args:
        columns: A sequence per value of a record, each with one number or bytes per record; or one
            sequence with a sequence per record.

    Returns:
        An array `[n, *shape]`, of bytes objects for strings; for shape `(None,)` a
        `tf.RaggedTensor` `[n, (values)]`.
    """
    if not feature.is_ragged and not _holds_lists(columns):
        if len(columns) != feature.size:
            raise ValueError(f"{len(columns)} values, not {feature.size}")
        return _flat(feature, columns).reshape(-1, *feature.shape)
    [rows] = columns
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    values = _flat(feature, [list(itertools.chain.from_iterable(rows))])
    if feature.is_ragged:
        flat = tf.convert_to_tensor(values, feature.dtype)
        return tf.RaggedTensor.from_row_lengths(flat, sizes, validate=False)
    if (sizes != feature.size).any():
        raise ValueError(f"some lists have not {feature.size} values")
    return values.reshape(-1, *feature.shape)


def numbers(feature: Feature, values: Any) -> npt.NDArray[Any]:
    """Values of all records one after the other.

    Args:
        feature: Of dtype int64 or float32.
        values: `[values of a record, n]`, or of shape `[n]`.
    """
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, np.int64 if feature.dtype == "int64" else np.float32)
    if array.dtype.kind not in ("iu" if feature.dtype == "int64" else "iuf"):
        raise ValueError(f"values are {array.dtype}, not {feature.dtype}")
    flat = array.T.reshape(-1)
    if feature.dtype == "float32":
        with np.errstate(over="ignore"):
            narrow = flat.astype("<f4")
        if np.isfinite(flat[np.isinf(narrow)]).any():
            raise ValueError("a value does not fit float32")
        return narrow
    if flat.dtype.kind == "u" and flat.max() > np.iinfo(np.int64).max:
        raise ValueError("a value does not fit int64")
    ids = flat.astype(np.int64)
    if feature.vocabulary_size and not (ids.min() >= 0 and ids.max() < feature.vocabulary_size):
        raise ValueError("an id lies outside its vocabulary")
    return ids


def _holds_lists(columns: Sequence[Sequence[Any]]) -> bool:
    return len(columns) == 1 and len(columns[0]) > 0 and isinstance(columns[0][0], list)


def _flat(feature: Feature, columns: Sequence[Sequence[Any]]) -> npt.NDArray[Any]:
    """Values of all records one after the other; refuses those of another dtype."""
    if feature.dtype != "string":
        return numbers(feature, columns)
    values = list(itertools.chain.from_iterable(zip(*columns, strict=True)))
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError("values are not bytes")
    flat = np.empty(len(values), object)
    flat[:] = values
    return flat
