"""A record as a serialized `tf.train.Example`: written from values, parsed into tensors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.data.feature import Feature
from tfps.errors import UserError

LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}  # by dtype
_DTYPES = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}


def encode(
    values: Mapping[str, Any], features: Sequence[Feature], labels: Sequence[Feature] = ()
) -> bytes:
    """One record of values by feature name.

    A value is a number or bytes for shape `()`, else a flat sequence or array of the feature's
    size.
    """
    example = tf.train.Example()
    slots = example.features.feature
    for feature in (*features, *labels):
        if feature.name not in values:
            raise UserError(f"feature {feature.name!r} has no value")
        flat = _flat(values[feature.name])
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
