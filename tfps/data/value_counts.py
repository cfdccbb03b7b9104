"""Counts in how many records a feature is missing, empty or wrong."""

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from google.protobuf.message import DecodeError

from tfps.data import examples
from tfps.data.examples import LISTS
from tfps.data.feature import Feature

_AT_ONCE, _BYTES_AT_ONCE = 4096, 16 << 20  # records that are parsed together


@dataclasses.dataclass(frozen=True)
class ValueCounts:
    """How many records hold what may be wrong in a feature."""

    missing: int = 0
    empty: int = 0  # lists
    misfit: int = 0
    not_finite: int = 0
    outside: int = 0

    def __add__(self, other: "ValueCounts") -> "ValueCounts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return ValueCounts(*(operator.add(*pair) for pair in pairs))


Counts = Mapping[str, ValueCounts]  # by the feature's name


class CountsSum:
    """The counts of some parts of a dataset together."""

    def __init__(self) -> None:
        self.total: dict[str, ValueCounts] = {}

    def add(self, counts: Counts) -> None:
        for name, more in counts.items():
            self.total[name] = self.total.get(name, ValueCounts()) + more


def count_values(
    feature: Feature, values: npt.NDArray[Any] | None, sizes: npt.NDArray[np.int64]
) -> ValueCounts:
    """Counts over the numbers of one feature, end to end; None for strings."""
    empty = int((sizes == 0).sum())
    misfit = 0 if feature.is_ragged else int((sizes != feature.size).sum()) - empty
    not_finite = outside = 0
    if values is not None and feature.dtype == "float32":
        not_finite = _records_of(~np.isfinite(values), sizes)
    elif values is not None and feature.vocabulary_size:
        outside = _records_of((values < 0) | (values >= feature.vocabulary_size), sizes)
    return ValueCounts(0, empty, misfit, not_finite, outside)


def count_records(records: Sequence[bytes], features: Sequence[Feature]) -> Counts:
    """Counts over serialized records; what is no `tf.train.Example` has no feature."""
    lists = [Feature(feature.name, feature.dtype, (None,)) for feature in features]
    if not records:
        return {}
    try:
        parsed, _ = examples.parse(tf.constant(records), lists)
    except tf.errors.InvalidArgumentError:
        one_by_one = CountsSum()
        for record in records:
            one_by_one.add(_of_one(record, features))
        return one_by_one.total
    found = {}
    for feature in features:
        held = parsed[feature.name]
        sizes = np.diff(held.row_splits.numpy())  # of what row_lengths() costs, a tenth
        values = None if feature.dtype == "string" else held.values.numpy()
        counts = count_values(feature, values, sizes)
        missing = sum(_lacks(records[k], feature) for k in np.flatnonzero(sizes == 0).tolist())
        found[feature.name] = dataclasses.replace(
            counts, missing=missing, empty=counts.empty - missing
        )
    return found


class RecordCounter:
    """Counts over serialized records that come one by one."""

    def __init__(self, features: Sequence[Feature]):
        self._features = features
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._counts = CountsSum()

    def add(self, record: bytes) -> None:
        """Counts a record, later on."""
        self._waiting.append(record)
        self._bytes += len(record)
        if len(self._waiting) == _AT_ONCE or self._bytes > _BYTES_AT_ONCE:
            self._count()

    def finish(self) -> Counts:
        self._count()
        return self._counts.total

    def _count(self) -> None:
        if self._waiting and self._features:
            self._counts.add(count_records(self._waiting, self._features))
        self._waiting, self._bytes = [], 0


def _records_of(is_wrong: npt.NDArray[np.bool_], sizes: npt.NDArray[np.int64]) -> int:
    """How many records have one of the values that are wrong."""
    if not is_wrong.any():
        return 0
    return len(np.unique(np.searchsorted(np.cumsum(sizes), np.flatnonzero(is_wrong), "right")))


def _lacks(record: bytes, feature: Feature) -> bool:
    """Whether a record without values lacks the feature, or else has an empty list."""
    if feature.name.encode() not in record:
        return True
    return _kind(feature, _held(record)) is None


def _held(record: bytes) -> Any:
    """A record's features by name; none of what is no Example."""
    try:
        return tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return {}


def _kind(feature: Feature, held: Any) -> str | None:
    return held[feature.name].WhichOneof("kind") if feature.name in held else None


def _of_one(record: bytes, features: Sequence[Feature]) -> Counts:
    held, found = _held(record), {}
    for feature in features:
        kind = _kind(feature, held)
        if kind is None:
            found[feature.name] = ValueCounts(missing=1)
        elif kind != LISTS[feature.dtype]:
            found[feature.name] = ValueCounts(misfit=1)
        else:
            values = getattr(held[feature.name], kind).value
            numbers = None if feature.dtype == "string" else np.array(values)
            found[feature.name] = count_values(feature, numbers, np.array([len(values)]))
    return found
