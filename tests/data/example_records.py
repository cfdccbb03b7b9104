"""Serialized records as other programs write them."""

from typing import Any

import tensorflow as tf
from tensorflow_serving.apis.input_pb2 import ExampleListWithContext


def value(*values: Any, dtype: str = "") -> tf.train.Feature:
    """A list of ints, floats or bytes; of an empty one `dtype` says of what."""
    kind = dtype or type(values[0]).__name__
    if kind == "int":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if kind == "float":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


UNSET = tf.train.Feature()  # a key without any list, as some write a null


def example(held: dict[str, tf.train.Feature]) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=held)).SerializeToString()


def sequence_example() -> bytes:
    lists = {"items": tf.train.FeatureList(feature=[value(1), value(2)])}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={"user": value(1)}),
        feature_lists=tf.train.FeatureLists(feature_list=lists),
    ).SerializeToString()


def list_with_context(examples: int = 2) -> bytes:
    found = ExampleListWithContext()
    found.context.features.feature["query"].CopyFrom(value(1))
    for number in range(examples):
        found.examples.add().features.feature["doc"].CopyFrom(value(number))
    return bytes(found.SerializeToString())
