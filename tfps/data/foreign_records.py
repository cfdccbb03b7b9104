"""Recognizes records that hold another message than `tf.train.Example`.

Protocol buffers do not say what they are: read as an Example, a SequenceExample has its context
alone, and an ExampleListWithContext has features whose names are bytes of other fields.
"""

import tensorflow as tf
from google.protobuf.message import DecodeError

from tfps.errors import listed


def foreign_kind(record: bytes) -> str:
    """What a record is that is no Example.

    Returns:
        What to say after the record's name; empty where it may be an Example.
    """
    return _list_with_context(record) or _sequence(record)


def _list_with_context(record: bytes) -> str:
    # Loaded here: only records that were not understood come here.
    from tensorflow_serving.apis.input_pb2 import ExampleListWithContext

    try:
        found = ExampleListWithContext.FromString(record)
    except DecodeError:
        return ""
    # An Example that is read so has no feature with a value, if it can be read at all.
    parts = [found.context, *found.examples]
    values = [value for part in parts for value in part.features.feature.values()]
    if not any(value.WhichOneof("kind") for value in values):
        return ""
    names = {name for part in found.examples for name in part.features.feature}
    return (
        f"is an ExampleListWithContext of {len(found.examples)} examples (context: "
        f"{listed(sorted(found.context.features.feature))}; examples: {listed(sorted(names))}), "
        "not a tf.train.Example"
    )


def _sequence(record: bytes) -> str:
    try:
        found = tf.train.SequenceExample.FromString(record).feature_lists.feature_list
    except DecodeError:
        return ""
    if not found:
        return ""
    return (
        f"is a tf.train.SequenceExample (feature_lists: {listed(sorted(found))}), not a "
        "tf.train.Example"
    )
