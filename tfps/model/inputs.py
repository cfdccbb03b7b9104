"""Passes a batch of features to a model, and to the signature of an exported one."""

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.data.feature import Feature
from tfps.errors import UserError, reason_of
from tfps.experiment.task import Task

SINGLE = "predictions"  # the name of predictions that are a tensor


def predict_by_name(task: Task, outputs: Any) -> dict[str, tf.Tensor]:
    """The predictions for a batch, `[batch, ...]` float32 by name; an unnamed one is `SINGLE`."""
    try:
        found = task.predictions(outputs)
        several = found if isinstance(found, Mapping) else {SINGLE: found}
        cast = {name: tf.cast(value, tf.float32) for name, value in several.items()}
    except UserError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise UserError(
            f"predictions() of {type(task).__name__} fails: {reason_of(error)}"
        ) from error
    for name, value in cast.items():
        if value.shape.rank == 0:
            raise UserError(
                f"predictions() of {type(task).__name__}: {name} is a scalar; it must have one "
                "value per record"
            )
    return cast


def batch_records(features: Mapping[str, tf.Tensor], labels: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Records of a batch, negatives among them, scalar int32."""
    for value in (*labels.values(), *features.values()):
        if not isinstance(value, tf.RaggedTensor):
            return tf.shape(value)[0]
    return tf.cast(value.nrows(), tf.int32)


def model_inputs(model: keras.Model, features: Sequence[Feature], values: Mapping[str, Any]) -> Any:
    """The inputs of a model, in the structure that it was made for.

    A functional model gets its own structure, a dict by its keys, a list by its inputs' names; any
    other model a dict by feature name, or the tensor of a single feature.
    """
    single = values[features[0].name] if len(features) == 1 else None
    structure = _structure(model)
    if structure is None:
        return dict(values) if single is None else single
    if isinstance(structure, dict):
        return {key: _value(key, values) for key in structure}
    if isinstance(structure, (list, tuple)):
        return [_value(tensor.name, values) for tensor in structure]
    return _value(structure.name, values) if single is None else single


def call_with_symbols(model: keras.Model, features: Sequence[Feature]) -> None:
    """Calls a model with tensors that have no values, so that all its layers are built.

    A model of the user's own code is called with TensorFlow's symbols where a feature varies in
    length: Keras's symbolic call would pass a dense tensor instead of a ragged one. So it is where
    Keras's call fails, which trusts layers' output shapes: `fit` calls a model with tensors.
    """
    is_functional = _structure(model) is not None
    if is_functional or not any(f.is_ragged for f in features):
        symbols = {
            f.name: keras.KerasTensor((None, *f.shape), f.dtype, ragged=f.is_ragged, name=f.name)
            for f in features
        }
        try:
            model(model_inputs(model, features, symbols))
            return
        except UserError:
            raise
        except Exception:  # whatever the user's code raises
            if is_functional:
                raise

    @tf.function(autograph=False)
    def call(values: Mapping[str, Any]) -> None:
        model(model_inputs(model, features, values))

    call.get_concrete_function({f.name: batch_spec(f) for f in features})


def batch_spec(feature: Feature) -> tf.TensorSpec | tf.RaggedTensorSpec:
    """A feature's values in a batch of any size."""
    if feature.is_ragged:
        return tf.RaggedTensorSpec([None, None], feature.dtype, row_splits_dtype=tf.int64)
    return tf.TensorSpec([None, *feature.shape], feature.dtype, feature.name)


def _structure(model: keras.Model) -> Any:
    """The inputs a functional model was made with; None for other models."""
    if isinstance(model, keras.Sequential) or not hasattr(model, "inputs"):
        return None
    return model.input


def _value(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise UserError(
            f"build_model(): the model's input {name!r} is no feature of the task, which has "
            f"{', '.join(values)}"
        )
    return values[name]


def signature_specs(features: Sequence[Feature]) -> dict[str, tf.TensorSpec]:
    """The tensors of a batch by name.

    A feature NAME of shape `(None,)` is two of them: NAME, the values of all records end to end,
    and NAME_row_lengths, `[n]` int64, the number of values of each record.
    """
    inputs = {}
    for feature in features:
        shape = [None] if feature.is_ragged else [None, *feature.shape]
        inputs[feature.name] = tf.TensorSpec(shape, feature.dtype, feature.name)
    for feature in features:
        lengths = row_lengths_of(feature)
        if feature.is_ragged and lengths in inputs:
            raise UserError(
                f"feature {lengths!r} has the name of the row lengths of {feature.name!r}; give it "
                "another"
            )
        if feature.is_ragged:
            inputs[lengths] = tf.TensorSpec([None], tf.int64, lengths)
    return inputs


def pack_signature_inputs(
    values: Mapping[str, tf.Tensor | tf.RaggedTensor], features: Sequence[Feature]
) -> dict[str, tf.Tensor]:
    """A batch of features as the tensors of `signature_specs`."""
    inputs = {}
    for feature in features:
        value = values[feature.name]
        if feature.is_ragged:
            inputs[row_lengths_of(feature)] = tf.cast(value.row_lengths(), tf.int64)
            value = value.values
        inputs[feature.name] = value
    return inputs


def unpack_signature_inputs(
    inputs: Mapping[str, tf.Tensor], features: Sequence[Feature]
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """A batch of features by name from the tensors of `signature_specs`."""
    values = {}
    for feature in features:
        value = inputs[feature.name]
        if feature.is_ragged:
            value = tf.RaggedTensor.from_row_lengths(value, inputs[row_lengths_of(feature)])
        values[feature.name] = value
    return values


def row_lengths_of(feature: Feature) -> str:
    """The input with the number of values of a feature `(None,)` in each record."""
    return f"{feature.name}_row_lengths"


def python_arguments(names: Iterable[str]) -> dict[str, str]:
    """Python's argument names of inputs whose own names cannot be any.

    TensorFlow makes each input an argument of a Python function. Its name must be an identifier in
    ASCII and no keyword; `self` is TensorFlow's own. Names that differ in case alone are one to it.
    """
    taken, others = set(), []
    for name in names:
        if _is_argument(name) and name.lower() not in taken:
            taken.add(name.lower())
        else:
            others.append(name)
    found = {}
    for name in others:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
        plain = plain if _is_argument(plain) else f"feature_{plain}".rstrip("_")
        argument, number = plain, 1
        while argument.lower() in taken:
            number += 1
            argument = f"{plain}_{number}"
        taken.add(argument.lower())
        found[name] = argument
    return found


def _is_argument(name: str) -> bool:
    is_plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is not None
    return is_plain and not keyword.iskeyword(name) and name != "self"
