"""Serializes many records at once, a column after the other.

It writes the wire format of `tf.train.Example` (https://protobuf.dev/programming-guides/encoding),
with prefixes that records share made once.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data.examples import ValueCounts, count_values, default_of
from tfps.data.feature import Feature

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"  # fields 1, 2, 3 of a Feature
_FIRST, _SECOND = b"\x0a", b"\x12"  # field 1 and field 2, each a length and that many bytes


def batch_of(feature: Feature, columns: Sequence[Sequence[Any]]) -> Any:
    """A batch for a model: an array `[n, *shape]`, ragged `[n, (values)]` for shape `(None,)`.

    Strings are bytes objects. Columns hold a sequence per value of a record, each with a number or
    bytes per record; or one sequence with a sequence per record. None is the feature's default.
    """
    columns = with_default(feature, columns)
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


def with_default(feature: Feature, columns: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Columns with the feature's default in place of None."""
    if feature.default is None:
        return columns
    default = default_of(feature)
    return [[default if value is None else value for value in column] for column in columns]


def numbers(feature: Feature, values: Any) -> npt.NDArray[Any]:
    """Values `[values of a record, n]` or `[n]`, record by record, in the feature's dtype."""
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


class RecordEncoder:
    """Turns columns of values into `tf.train.Example`s."""

    def __init__(self, features: Sequence[Feature]):
        self._features = sorted(features, key=lambda feature: feature.name)  # as examples.encode
        self._example_prefix = _Prefix(_FIRST)
        self.counts: dict[str, ValueCounts] = {}

    def encode(self, columns: Mapping[str, Sequence[Sequence[Any]]]) -> list[bytes]:
        """The records of columns, which are by feature name as `batch_of` takes them."""
        self.counts = {}
        parts = [self._entries(feature, columns[feature.name]) for feature in self._features]
        joined = map(b"".join, zip(*parts, strict=True))
        prefix = self._example_prefix.of
        return [prefix(len(record)) + record for record in joined]

    def _entries(self, feature: Feature, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """One entry of the map of features for each record; counts them.

        It is empty for a record without any value of a feature with a default.
        """
        is_missing: list[bool] = []
        if feature.default is not None:
            is_missing = [all(value is None for value in row) for row in zip(*columns, strict=True)]
        if any(is_missing):
            is_held = [not missing for missing in is_missing]
            held = [list(itertools.compress(column, is_held)) for column in columns]
            entries = iter(self._all_entries(feature, with_default(feature, held)))
            counts = self.counts[feature.name]
            self.counts[feature.name] = dataclasses.replace(counts, missing=sum(is_missing))
            return [b"" if missing else next(entries) for missing in is_missing]
        return self._all_entries(feature, with_default(feature, columns))

    def _all_entries(self, feature: Feature, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """The entries of records that all have the feature; counts them."""
        if feature.is_ragged:
            [rows] = columns
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            values: Any = list(itertools.chain.from_iterable(rows))
        else:
            if len(columns) != feature.size:
                raise ValueError(f"{len(columns)} values, not {feature.size}")
            sizes = np.full(len(columns[0]), feature.size, np.int64)
            values = columns
        if feature.dtype == "string":
            payloads = _strings(values, sizes, feature.is_ragged)
            kind = _BYTES_LIST
            self.counts[feature.name] = count_values(feature, None, sizes)
        else:
            flat = numbers(feature, values)
            encode = _int64s if feature.dtype == "int64" else _floats
            payloads = encode(flat, np.cumsum(sizes))
            kind = _INT64_LIST if feature.dtype == "int64" else _FLOAT_LIST
            self.counts[feature.name] = count_values(feature, flat, sizes)
        prefix = _entry_prefix(feature.name.encode(), kind)
        return [prefix(len(payload)) + payload for payload in payloads]


class _Prefix:
    """A tag and a length, made once per length."""

    def __init__(self, tag: bytes):
        self._tag = tag
        self._made: dict[int, bytes] = {}

    def of(self, length: int) -> bytes:
        prefix = self._made.get(length)
        if prefix is None:
            prefix = self._made[length] = self._tag + _varint(length)
        return prefix


def _entry_prefix(name: bytes, kind: bytes) -> Callable[[int], bytes]:
    """What precedes a feature's list of values, by its bytes."""
    made: dict[int, bytes] = {}
    key = _FIRST + _varint(len(name)) + name

    def prefix(length: int) -> bytes:
        found = made.get(length)
        if found is None:
            # A list of numbers is packed: one field of the list holds them all.
            packed = b"" if kind == _BYTES_LIST else _FIRST + _varint(length)
            values = kind + _varint(len(packed) + length) + packed
            feature = _SECOND + _varint(len(values) + length) + values
            found = made[length] = (
                _FIRST + _varint(len(key) + len(feature) + length) + key + feature
            )
        return found

    return prefix


def _floats(flat: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> list[bytes]:
    return _split(flat.tobytes(), ends * 4)


def _int64s(flat: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> list[bytes]:
    """Varints: seven bits per byte, the lowest first, the eighth bit set in all but the last."""
    rest = flat.view(np.uint64)
    sizes = np.ones(len(rest), np.int64)
    for bits in range(7, 64, 7):
        longer = rest >= np.uint64(1 << bits)
        if not longer.any():
            break
        sizes += longer
    ends_of_values = np.cumsum(sizes)
    encoded = np.empty(int(sizes.sum()), np.uint8)
    at = ends_of_values - sizes
    while len(rest):
        goes_on = rest >= 0x80
        encoded[at] = (rest & np.uint64(0x7F)).astype(np.uint8) | (goes_on << 7).astype(np.uint8)
        rest, at = rest[goes_on] >> np.uint64(7), at[goes_on] + 1
    ends_in_bytes = np.concatenate(([0], ends_of_values))[ends]
    return _split(encoded.tobytes(), ends_in_bytes)


def _strings(values: Any, sizes: npt.NDArray[np.int64], is_ragged: bool) -> list[bytes]:
    """One field of the list for each value."""
    flat = values if is_ragged else list(itertools.chain.from_iterable(zip(*values, strict=True)))
    if not all(isinstance(value, bytes) for value in flat):
        raise ValueError("values are not bytes")
    prefix = _Prefix(_FIRST).of
    fields = iter([prefix(len(value)) + value for value in flat])
    return [b"".join(itertools.islice(fields, size)) for size in sizes.tolist()]


def _split(content: bytes, ends: npt.NDArray[np.int64]) -> list[bytes]:
    bounds = [0, *ends.tolist()]
    return [content[start:end] for start, end in itertools.pairwise(bounds)]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
