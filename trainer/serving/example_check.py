"""Serialized records of a request, looked at before a model is asked."""

from collections.abc import Sequence

import tensorflow as tf
from google.protobuf.message import DecodeError

from tfps.data.examples import LISTS
from tfps.data.feature import Feature
from trainer.serving.refusal import unfit


def check_examples(
    serialized: Sequence[bytes], features: Sequence[Feature], has_rows: bool
) -> None:
    """Refuses what is not a record of some features.

    Args:
        serialized: Each a `tf.train.Example`; what else it holds does not matter.
        features: What each must hold.
        has_rows: Whether the request was in rows, for the message.
    """
    for row, content in enumerate(serialized):
        place = f"instances[{row}]" if has_rows else f"inputs: record {row}"
        try:
            example = tf.train.Example.FromString(content)
        except DecodeError:
            raise unfit(f"{place} is no serialized tf.train.Example") from None
        for feature in features:
            wrong = _wrong(example, feature)
            if wrong:
                raise unfit(f"{place}: feature {feature.name!r} {wrong}")


def _wrong(example: tf.train.Example, feature: Feature) -> str:
    """What is wrong with an example's values of a feature; empty for nothing."""
    held = example.features.feature.get(feature.name)
    kind = held.WhichOneof("kind") if held is not None else None
    if kind is None:
        return "" if feature.may_be_absent else "is missing"
    if kind != LISTS[feature.dtype]:
        return f"holds an {kind}, not a {LISTS[feature.dtype]}"
    values = getattr(held, kind).value
    if not values and feature.may_be_absent:
        return ""
    if feature.size is not None and len(values) != feature.size:
        return f"has {len(values)} values where {feature.size} are needed"
    ids = feature.vocabulary_size
    outside = [value for value in values if not 0 <= value < ids] if ids else []
    return f"has the id {outside[0]}, outside its vocabulary of 0 to {ids - 1}" if outside else ""
