"""Says what is wrong with one record."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tfps.data.feature import Feature

_KINDS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}
_CONTENTS = {"int64_list": "integers", "float_list": "floats", "bytes_list": "strings"}


def problem(record: bytes, features: Sequence[Feature]) -> str:
    """Why a record is not what the features say.

    Args:
        record: A serialized `tf.train.Example`.
        features: Features and labels that it must hold.

    Returns:
        What to say after the record's name, such as "has no 'age'"; empty for a good record.
    """
    try:
        held = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return "is no tf.train.Example"
    for feature in features:
        if found := _problem(feature, held):
            return found
    return ""


def _problem(feature: Feature, held: Any) -> str:
    kind = held[feature.name].WhichOneof("kind") if feature.name in held else None
    if kind is None:
        names = ", ".join(sorted(held)) or "nothing"
        return "" if feature.is_ragged else f"has no {feature.name!r} (it has {names})"
    if kind != _KINDS[feature.dtype]:
        return f"holds {_CONTENTS[kind]} in {feature.name!r}, not {feature.dtype}"
    values = getattr(held[feature.name], kind).value
    if not feature.is_ragged and len(values) != feature.size:
        return f"holds {len(values)} values in {feature.name!r}, not {feature.size}"
    if feature.vocabulary_size and values:
        for value in (min(values), max(values)):
            if not 0 <= value < feature.vocabulary_size:
                return (
                    f"holds the id {value} in {feature.name!r}, outside "
                    f"[0, {feature.vocabulary_size})"
                )
    return ""
