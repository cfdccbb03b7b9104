"""Some records that an exported model can be asked about, from what warms its servers up.

TensorFlow's own classes for these messages load TensorFlow; those made here know the few fields
that are read.
"""

import functools
import posixpath
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from cloud.deployment import model_files
from cloud.deployment.served_model import ServedModel
from tfps.errors import UserError
from tfps.export.names import EXAMPLES_INPUT, WARM_UP_FILE

_LENGTH, _CRC_BYTES = struct.Struct("<QI"), 4
# Fields by message: name, number, and the message that it holds; texts and bytes hold none.
_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "PredictionLog": (("predict_log", 6, "PredictLog"),),
    "PredictLog": (("request", 1, "PredictRequest"),),
    "PredictRequest": (("model_spec", 1, "ModelSpec"), ("inputs", 2, "Input")),
    "ModelSpec": (("signature_name", 3, ""),),
    "Input": (("key", 1, ""), ("value", 2, "Tensor")),
    "Tensor": (("string_val", 8, ""),),
}
_REPEATED = ("inputs", "string_val")
_PACKAGE = "tfps.warm_up"


class SampleRecords(NamedTuple):
    """Records as a server takes them.

    Attributes:
        signature: The signature that takes them.
        examples: Serialized examples, one or more.
    """

    signature: str
    examples: tuple[bytes, ...]


def read(model: ServedModel) -> SampleRecords | None:
    """The largest request of serialized examples with which servers warm a model up.

    Args:
        model: The model.

    Returns:
        Its records; None of a model that has none.

    Raises:
        UserError: If the file cannot be read.
    """
    if not model.has_warm_up:
        return None
    path = posixpath.join(model.path, WARM_UP_FILE)
    found: SampleRecords | None = None
    try:
        for record in _records(model_files.read(path)):
            request = _log_class().FromString(record).predict_log.request
            for each in request.inputs:
                held = tuple(each.value.string_val)
                if each.key == EXAMPLES_INPUT and len(held) > (len(found.examples) if found else 0):
                    found = SampleRecords(request.model_spec.signature_name, held)
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
    file = descriptor_pb2.FileDescriptorProto(
        name="tfps/warm_up.proto", package=_PACKAGE, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, held in fields:
            field = made.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if name in _REPEATED else kinds.LABEL_OPTIONAL
            field.type = (
                kinds.TYPE_MESSAGE
                if held
                else kinds.TYPE_BYTES
                if name == "string_val"
                else kinds.TYPE_STRING
            )
            if held:
                field.type_name = f".{_PACKAGE}.{held}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.PredictionLog"))
