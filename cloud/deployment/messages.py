"""Classes for protocol buffers of TensorFlow, of which only a few fields are known.

TensorFlow's own classes for these messages load TensorFlow. Fields that are not known are kept as
they are when a message is written again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_KIND = descriptor_pb2.FieldDescriptorProto
TEXT, BYTES, NUMBER = "text", "bytes", "number"
_KINDS = {TEXT: _KIND.TYPE_STRING, BYTES: _KIND.TYPE_BYTES, NUMBER: _KIND.TYPE_INT64}


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        kind: TEXT, BYTES, NUMBER, or the name of a message.
    """

    name: str
    number: int
    kind: str
    is_repeated: bool = False


def class_of(messages: Mapping[str, Sequence[Field]]) -> Any:
    """A class for the first of some messages."""
    outermost = next(iter(messages))
    package = f"tfps.{outermost}"
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for message, fields in messages.items():
        made = file.message_type.add(name=message)
        for name, number, kind, is_repeated in fields:
            field = made.field.add(name=name, number=number)
            field.label = _KIND.LABEL_REPEATED if is_repeated else _KIND.LABEL_OPTIONAL
            field.type = _KINDS.get(kind, _KIND.TYPE_MESSAGE)
            if kind not in _KINDS:
                field.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{outermost}"))
