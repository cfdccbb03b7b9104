"""What TensorBoard's HParams plugin reads of a run: what was set for it, and how it ended.

The messages are those of TensorBoard's `plugins/hparams/plugin_data.proto`, of which the fields
that are written are declared here: TensorBoard itself is not needed.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

PLUGIN = "hparams"
START_TAG, END_TAG = "_hparams_/session_start_info", "_hparams_/session_end_info"
SUCCESS, FAILURE = 1, 2
_VERSION = 0
_PACKAGE = "tfps.hparams"
_Field = descriptor_pb2.FieldDescriptorProto


def _declare() -> dict[str, Any]:
    """The classes of the messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tfps/hparams.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=["google/protobuf/struct.proto"],
    )
    start = file.message_type.add(name="SessionStartInfo")
    entry = start.nested_type.add(name="HparamsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    _add(entry, "value", 2, ".google.protobuf.Value")
    _add(start, "hparams", 1, f".{_PACKAGE}.SessionStartInfo.HparamsEntry", repeated=True)
    _add(start, "start_time_secs", 5, _Field.TYPE_DOUBLE)
    end = file.message_type.add(name="SessionEndInfo")
    _add(end, "status", 1, _Field.TYPE_INT32)  # on the wire an enum is one
    _add(end, "end_time_secs", 2, _Field.TYPE_DOUBLE)
    data = file.message_type.add(name="HParamsPluginData")
    _add(data, "version", 1, _Field.TYPE_INT32)
    _add(data, "session_start_info", 3, f".{_PACKAGE}.SessionStartInfo")
    _add(data, "session_end_info", 4, f".{_PACKAGE}.SessionEndInfo")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}")
        )
        for message in file.message_type
    }


def _add(message: Any, name: str, number: int, kind: "int | str", repeated: bool = False) -> None:
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if isinstance(kind, str):
        of = {"type": _Field.TYPE_MESSAGE, "type_name": kind}
        message.field.add(name=name, number=number, label=label, **of)
    else:
        message.field.add(name=name, number=number, label=label, type=kind)


_MESSAGES = _declare()


def session_start(settings: Mapping[str, str], at: float) -> bytes:
    """What the plugin reads of a run that begins.

    Args:
        settings: What was set for it, by name; numbers and truth values are shown as such.
        at: When it began, seconds since 1970.
    """
    data = _MESSAGES["HParamsPluginData"](version=_VERSION)
    data.session_start_info.start_time_secs = at
    for name, text in settings.items():
        value = data.session_start_info.hparams[name]
        parsed = _parsed(text)
        if isinstance(parsed, bool):
            value.bool_value = parsed
        elif isinstance(parsed, float):
            value.number_value = parsed
        else:
            value.string_value = parsed
    return bytes(data.SerializeToString(deterministic=True))


def session_end(is_success: bool, at: float) -> bytes:
    """What the plugin reads of a run that has ended.

    Args:
        at: When, seconds since 1970.
    """
    data = _MESSAGES["HParamsPluginData"](version=_VERSION)
    data.session_end_info.status = SUCCESS if is_success else FAILURE
    data.session_end_info.end_time_secs = at
    return bytes(data.SerializeToString(deterministic=True))


def _parsed(text: str) -> bool | float | str:
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text
