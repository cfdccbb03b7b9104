"""Some records that an exported model can be asked about, from what warms its servers up."""

import functools
import json
import posixpath
import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from cloud.deployment import model_files
from cloud.deployment.served_model import ServedModel
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.export.exported_files import EXAMPLES_INPUT, WARM_UP_FILE

_VALUES: dict[str, Any] = {"int64": 1, "float32": 0.5, "string": "text"}
_LENGTH, _CRC_BYTES = struct.Struct("<QI"), 4
# What is read of TensorFlow Serving's `PredictionLog`.
_LOGS = """
name: "tfps.proto" package: "tfps" syntax: "proto3"
message_type { name: "PredictionLog"
  field { name: "predict_log" number: 6 type: TYPE_MESSAGE type_name: "PredictLog" } }
message_type { name: "PredictLog"
  field { name: "request" number: 1 type: TYPE_MESSAGE type_name: "PredictRequest" } }
message_type { name: "PredictRequest"
  field { name: "model_spec" number: 1 type: TYPE_MESSAGE type_name: "ModelSpec" }
  field { name: "inputs" number: 2 type: TYPE_MESSAGE type_name: "Input" label: LABEL_REPEATED } }
message_type { name: "ModelSpec"
  field { name: "signature_name" number: 3 type: TYPE_STRING } }
message_type { name: "Input"
  field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "Tensor" } }
message_type { name: "Tensor"
  field { name: "string_val" number: 8 type: TYPE_BYTES label: LABEL_REPEATED } }
"""


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


def read(model: ServedModel) -> tuple[str, tuple[bytes, ...]]:
    """The largest request of examples with which servers warm a model up: signature, examples."""
    found: tuple[str, tuple[bytes, ...]] = "", ()
    if not model.has_warm_up:
        return found
    path = posixpath.join(model.path, WARM_UP_FILE)
    try:
        for record in _records(model_files.read(path)):
            request = _log_class().FromString(record).predict_log.request
            for each in request.inputs:
                held = tuple(each.value.string_val)
                if each.key == EXAMPLES_INPUT and len(held) > len(found[1]):
                    found = request.model_spec.signature_name, held
    except (DecodeError, struct.error):
        raise UserError(
            f"--model: {path} has no requests to warm a server up; export the model again"
        ) from None
    return found


def _records(content: bytes) -> Iterator[bytes]:
    """The records of a TFRecord file."""
    place = 0
    while place < len(content):
        length, _ = _LENGTH.unpack_from(content, place)
        begin = place + _LENGTH.size
        place = begin + length + _CRC_BYTES
        if place > len(content):
            raise DecodeError("the file ends within a record")
        yield content[begin : begin + length]


@functools.cache
def _log_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_LOGS, FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfps.PredictionLog"))
