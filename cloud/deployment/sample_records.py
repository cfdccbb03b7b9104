"""Some records that an exported model can be asked about, from what warms its servers up."""

import functools
import posixpath
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from cloud.deployment import messages, model_files
from cloud.deployment.messages import BYTES, TEXT, Field
from cloud.deployment.served_model import ServedModel
from tfps.errors import UserError
from tfps.export.exported_files import EXAMPLES_INPUT, WARM_UP_FILE

_LENGTH, _CRC_BYTES = struct.Struct("<QI"), 4


class SampleRecords(NamedTuple):
    """Records as a server takes them."""

    signature: str
    examples: tuple[bytes, ...]


def read(model: ServedModel) -> SampleRecords | None:
    """The largest request of serialized examples with which servers warm a model up.

    Returns:
        Its records; None of a model that has none.
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
    return messages.class_of(
        {
            "PredictionLog": [Field("predict_log", 6, "PredictLog")],
            "PredictLog": [Field("request", 1, "PredictRequest")],
            "PredictRequest": [
                Field("model_spec", 1, "ModelSpec"),
                Field("inputs", 2, "Input", is_repeated=True),
            ],
            "ModelSpec": [Field("signature_name", 3, TEXT)],
            "Input": [Field("key", 1, TEXT), Field("value", 2, "Tensor")],
            "Tensor": [Field("string_val", 8, BYTES, is_repeated=True)],
        }
    )
