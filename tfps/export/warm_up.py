"""Requests with which TensorFlow Serving tries a model before it answers anybody.

The first requests that a model is given take longer, since TensorFlow prepares its graph then. So a
server sends itself those in `assets.extra/tf_serving_warmup_requests`, a TFRecord of messages of
the kind `PredictionLog`: https://www.tensorflow.org/tfx/serving/saved_model_warmup.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tfps.data import examples
from tfps.data.feature import Feature
from tfps.export.names import (
    EXAMPLES_INPUT,
    EXAMPLES_SIGNATURE,
    FEATURES_SIGNATURE,
    WARM_UP_FILE,
)
from tfps.model.inputs import pack_signature_inputs
from tfps.storage import files

_SIZES = (1, 32)  # records of a request


class WarmUpRequest(NamedTuple):
    """What a model is asked before it answers anybody."""

    signature: str
    inputs: dict[str, Any]


def write_warm_up(directory: str, features: Sequence[Feature], records: Mapping[str, Any]) -> None:
    """Writes requests to both signatures, of one record and of several.

    Args:
        records: Tensors `[n, *shape]` of some records by feature name, ragged for shape `(None,)`.
    """
    path = posixpath.join(directory, WARM_UP_FILE)
    tf.io.gfile.makedirs(posixpath.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for signature, inputs in _requests(features, records):
            log = PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            writer.write(log.SerializeToString(deterministic=True))


def read_warm_up(directory: str) -> list[WarmUpRequest]:
    """The requests that lie beside a SavedModel; none where there is no such file."""
    path = posixpath.join(directory, WARM_UP_FILE)
    if not files.exists(path):
        return []
    try:
        logs = [
            PredictionLog.FromString(record)
            for record in tf.data.TFRecordDataset(path).as_numpy_iterator()
        ]
    except DecodeError as error:
        raise ValueError(f"{path} does not hold messages PredictionLog ({error})") from None
    return [_request(log.predict_log.request) for log in logs]


def _request(message: PredictRequest) -> WarmUpRequest:
    inputs = {name: tf.make_ndarray(value) for name, value in message.inputs.items()}
    return WarmUpRequest(message.model_spec.signature_name or FEATURES_SIGNATURE, inputs)


def _requests(
    features: Sequence[Feature], records: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Signatures, with what they are asked."""
    held = records[features[0].name].shape[0]
    for size in sorted({min(size, held) for size in _SIZES}):
        some = {feature.name: records[feature.name][:size] for feature in features}
        packed = pack_signature_inputs(some, features)
        yield FEATURES_SIGNATURE, {name: np.asarray(value) for name, value in packed.items()}
        rows = [{name: _flat(value[k]) for name, value in some.items()} for k in range(size)]
        yield EXAMPLES_SIGNATURE, {EXAMPLES_INPUT: [examples.encode(row, features) for row in rows]}


def _flat(value: Any) -> Any:
    """A record's value as `examples.encode` takes it."""
    values = np.asarray(value)
    return values.item() if values.ndim == 0 else values.reshape(-1)
