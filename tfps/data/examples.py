"""Records as serialized `tf.train.Example`s: written from values, parsed, and counted."""

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from google.protobuf.message import DecodeError

from tfps.data.feature import Feature
from tfps.errors import UserError

LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}  # by dtype
DTYPES = {held: dtype for dtype, held in LISTS.items()}
_DTYPES = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}
_AT_ONCE, _BYTES_AT_ONCE = 4096, 16 << 20  # records that are parsed together


def encode(
    values: Mapping[str, Any], features: Sequence[Feature], labels: Sequence[Feature] = ()
) -> bytes:
    """One record of values by feature name.

    A value is a number or bytes for shape `()`, else a flat sequence or array of the feature's
    size. A feature with a default is left out where all its values are None.
    """
    example = tf.train.Example()
    slots = example.features.feature
    for feature in (*features, *labels):
        if feature.name not in values:
            raise UserError(f"feature {feature.name!r} has no value")
        flat = _flat(values[feature.name])
        if feature.default is not None and None in flat:
            if not any(value is not None for value in flat):
                continue
            flat = [default_of(feature) if value is None else value for value in flat]
        slot = slots[feature.name]
        try:
            _check(feature, flat)
            if feature.dtype == "int64":
                slot.int64_list.value.extend(flat)
            elif feature.dtype == "float32":
                slot.float_list.value.extend(flat)
                _check_finite(feature, flat, slot.float_list.value)
            else:
                slot.bytes_list.value.extend(flat)
        except (OverflowError, TypeError, ValueError) as error:
            raise UserError(f"feature {feature.name!r} ({feature.dtype}): {error}") from None
    # In a fixed order: equal rows make equal files, whichever process writes them.
    return bytes(example.SerializeToString(deterministic=True))


def parse(
    serialized: tf.Tensor, features: Sequence[Feature], labels: Sequence[Feature] = ()
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """A batch of records, serialized as strings `[n]`; works inside `tf.data` and `tf.function`.

    Gives tensors `[n, *shape]` of the features and of the labels, by name; for shape `(None,)`
    ragged `[n, (values)]`. A record without a feature that has a default has that value.
    """
    wanted = {feature.name: _parsed_as(feature) for feature in (*features, *labels)}
    parsed = tf.io.parse_example(serialized, wanted)
    inputs, truth = (
        {feature.name: _value(feature, parsed[feature.name]) for feature in some}
        for some in (features, labels)
    )
    return inputs, truth


def _parsed_as(
    feature: Feature,
) -> tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature | tf.io.RaggedFeature:
    dtype = _DTYPES[feature.dtype]
    if feature.is_ragged:
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    if feature.default is not None:
        # Not FixedLenFeature's default_value, which an empty list does not get: Spark and others
        # write one for a value that is missing.
        return tf.io.FixedLenSequenceFeature(feature.shape, dtype, True, feature.default)
    return tf.io.FixedLenFeature(feature.shape, dtype)


def _value(feature: Feature, parsed: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    return parsed if feature.default is None else _with_default(feature, parsed)


def _with_default(feature: Feature, several: tf.Tensor) -> tf.Tensor:
    """One value per record, of as many as any of a batch has: `[n, most values, *shape]`."""
    is_single = tf.shape(several)[1] <= 1
    # Not tf.debugging.Assert, whose branches are functions that every closure has to set up.
    wrong = f"a record holds too many values in {feature.name!r}"
    with tf.control_dependencies([tf.raw_ops.Assert(condition=is_single, data=[wrong])]):
        default = tf.constant(feature.default, several.dtype)
        absent = tf.fill([tf.shape(several)[0], 1, *feature.shape], default)
    return tf.concat([several, absent], 1)[:, 0]


def default_of(feature: Feature) -> int | float | bytes:
    """What a missing value of a feature with a default counts as."""
    default = feature.default
    return default.encode() if isinstance(default, str) else default or 0


def _flat(value: Any) -> Sequence[Any]:
    if hasattr(value, "tolist"):
        value = value.reshape(-1).tolist()
    return value if isinstance(value, list | tuple) else (value,)


def _check(feature: Feature, flat: Sequence[Any]) -> None:
    if not feature.is_ragged and len(flat) != feature.size:
        raise UserError(
            f"feature {feature.name!r}: {len(flat)} values, but its shape {feature.shape} "
            f"holds {feature.size}"
        )
    if (
        feature.vocabulary is not None
        and flat
        and not (min(flat) >= 0 and max(flat) < feature.vocabulary_size)
    ):
        raise UserError(
            f"feature {feature.name!r}: an id in {list(flat)} lies outside "
            f"[0, {feature.vocabulary_size})"
        )


def _check_finite(feature: Feature, flat: Sequence[Any], written: Sequence[float]) -> None:
    """Refuses numbers that only become infinite as float32."""
    for number, held in zip(flat, written, strict=True):
        if math.isinf(held) and not math.isinf(number):
            raise UserError(f"feature {feature.name!r}: {number} does not fit float32")


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

    def __init__(self, total: Counts | None = None) -> None:
        self.total = dict(total or {})

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
        parsed, _ = parse(tf.constant(records), lists)
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
    return kind_of(feature, _held(record)) is None


def _held(record: bytes) -> Any:
    """A record's features by name; none of what is no Example."""
    try:
        return tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return {}


def kind_of(feature: Feature, held: Any) -> str | None:
    """Which list a record holds for a feature; None where it lacks it."""
    return held[feature.name].WhichOneof("kind") if feature.name in held else None


def _of_one(record: bytes, features: Sequence[Feature]) -> Counts:
    held, found = _held(record), {}
    for feature in features:
        kind = kind_of(feature, held)
        if kind is None:
            found[feature.name] = ValueCounts(missing=1)
        elif kind != LISTS[feature.dtype]:
            found[feature.name] = ValueCounts(misfit=1)
        else:
            values = getattr(held[feature.name], kind).value
            numbers = None if feature.dtype == "string" else np.array(values)
            found[feature.name] = count_values(feature, numbers, np.array([len(values)]))
    return found
