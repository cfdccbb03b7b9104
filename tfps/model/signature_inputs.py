"""Features as the dense tensors that a SavedModel's signature can take."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.data.feature import Feature
from tfps.errors import UserError


def specs(features: Sequence[Feature]) -> dict[str, tf.TensorSpec]:
    """The tensors of a batch by name.

    A feature NAME of shape `(None,)` is two of them: NAME, the values of all records laid end to
    end, and NAME_row_lengths, `[n]` int64, the number of values of each record.

    Raises:
        UserError: If a feature has the name of another's row lengths.
    """
    inputs = {}
    for feature in features:
        shape = [None] if feature.is_ragged else [None, *feature.shape]
        inputs[feature.name] = tf.TensorSpec(shape, feature.dtype, feature.name)
    for feature in features:
        lengths = _lengths_of(feature)
        if feature.is_ragged and lengths in inputs:
            raise UserError(
                f"feature {lengths!r} has the name of the row lengths of {feature.name!r}; give it "
                "another"
            )
        if feature.is_ragged:
            inputs[lengths] = tf.TensorSpec([None], tf.int64, lengths)
    return inputs


def pack(
    values: Mapping[str, tf.Tensor | tf.RaggedTensor], features: Sequence[Feature]
) -> dict[str, tf.Tensor]:
    """A batch of features as the tensors of `specs`."""
    inputs = {}
    for feature in features:
        value = values[feature.name]
        if feature.is_ragged:
            inputs[_lengths_of(feature)] = tf.cast(value.row_lengths(), tf.int64)
            value = value.values
        inputs[feature.name] = value
    return inputs


def unpack(
    inputs: Mapping[str, tf.Tensor], features: Sequence[Feature]
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """A batch of features by name from the tensors of `specs`."""
    values = {}
    for feature in features:
        value = inputs[feature.name]
        if feature.is_ragged:
            value = tf.RaggedTensor.from_row_lengths(value, inputs[_lengths_of(feature)])
        values[feature.name] = value
    return values


def _lengths_of(feature: Feature) -> str:
    return f"{feature.name}_row_lengths"
