"""TensorFlow Serving's messages, as published; text is read strictly.

tensorflow-serving-api has that of the models. Those of `monitoring_config.proto` and, of
`session_bundle_config.proto`, `BatchingParameters` it lacks: here are their fields.
"""

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

_FIELD = descriptor_pb2.FieldDescriptorProto
_WRAPPERS = wrappers_pb2.DESCRIPTOR.name
_INT64, _BOOL = ".google.protobuf.Int64Value", ".google.protobuf.BoolValue"
_MESSAGES = {
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, ".tfps_tests.PrometheusConfig")},
    "BatchingParameters": {
        "max_batch_size": (1, _INT64),
        "batch_timeout_micros": (2, _INT64),
        "max_enqueued_batches": (3, _INT64),
        "num_batch_threads": (4, _INT64),
        "enable_large_batch_splitting": (8, _BOOL),
        "max_execution_batch_size": (9, _INT64),
    },
}


def models(text):
    """A ModelServerConfig."""
    return text_format.Parse(text, ModelServerConfig())


def monitoring(text):
    """A MonitoringConfig."""
    return text_format.Parse(text, _classes()["tfps_tests.MonitoringConfig"]())


def batching(text):
    """BatchingParameters."""
    return text_format.Parse(text, _classes()["tfps_tests.BatchingParameters"]())


def _classes():
    file = descriptor_pb2.FileDescriptorProto(
        name="tfps_tests.proto", package="tfps_tests", syntax="proto3", dependency=[_WRAPPERS]
    )
    simple = {"bool": _FIELD.TYPE_BOOL, "string": _FIELD.TYPE_STRING}
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
            added.type = simple.get(kind, _FIELD.TYPE_MESSAGE)
            if kind not in simple:
                added.type_name = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)
