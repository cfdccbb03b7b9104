"""A request that a model answers, to be tried by hand."""

import json
from typing import Any

from cloud.deployment.served_model import ServedModel
from tfps.data.feature import Feature

_VALUES: dict[str, Any] = {"int64": 1, "float32": 0.5, "string": "text"}


def body(model: ServedModel) -> str:
    """The body of a request for predictions of one record, as TensorFlow Serving takes it.

    A record is an object in `instances`. Where the number of values varies among records, only
    `inputs` can tell: all records' values laid end to end, and how many each has.
    """
    if any(feature.is_ragged for feature in model.features):
        inputs: dict[str, Any] = {}
        for feature in model.features:
            inputs[feature.name] = _value(feature) if feature.is_ragged else [_value(feature)]
            if feature.is_ragged:
                inputs[f"{feature.name}_row_lengths"] = [len(inputs[feature.name])]
        return json.dumps({"inputs": inputs})
    return json.dumps({"instances": [{each.name: _value(each) for each in model.features}]})


def curl(model: ServedModel, address: str) -> str:
    """The request as a line for a shell."""
    quoted = body(model).replace("'", "'\\''")
    return f"curl --fail-with-body {address}:predict --data '{quoted}'"


def _value(feature: Feature) -> Any:
    """A value that the feature may have: an id lies within its vocabulary."""
    value = 0 if feature.vocabulary_size == 1 else _VALUES[feature.dtype]
    if feature.is_ragged:
        return [value, value]
    for size in reversed(feature.shape):
        value = [value] * (size or 1)
    return value
