"""The versions of an exported model: numbered directories, as TensorFlow Serving wants them.

A version is there once it is whole: on a disk its directory is renamed, in a bucket
`saved_model.pb` is written last, without which servers ignore a directory.
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
from tfps.export.exported_files import (
    EXAMPLES_INPUT,
    EXAMPLES_SIGNATURE,
    FEATURES_SIGNATURE,
    GRAPH_FILE,
    WARM_UP_FILE,
)
from tfps.model.inputs import pack_signature_inputs
from tfps.storage import files

_SIZES = (1, 32)  # records of a request
_REFUSED = "refused"


class WarmUpRequest(NamedTuple):
    """A request to a model before it answers anybody."""

    signature: str
    inputs: dict[str, Any]


def write_warm_up(directory: str, features: Sequence[Feature], records: Mapping[str, Any]) -> None:
    """Writes requests to both signatures, of one record and of several of `records`.

    These are tensors `[n, *shape]` by feature name, ragged for shape `(None,)`.
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
    """The requests of a SavedModel; none where it has no such file."""
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
    held = records[features[0].name].shape[0]
    for size in sorted({min(size, held) for size in _SIZES}):
        some = {feature.name: records[feature.name][:size] for feature in features}
        packed = pack_signature_inputs(some, features)
        yield FEATURES_SIGNATURE, {name: np.asarray(value) for name, value in packed.items()}
        rows = [{name: _flat(value[k]) for name, value in some.items()} for k in range(size)]
        yield EXAMPLES_SIGNATURE, {EXAMPLES_INPUT: [examples.encode(row, features) for row in rows]}


def _flat(value: Any) -> Any:
    """A record's value for `examples.encode`."""
    values = np.asarray(value)
    return values.item() if values.ndim == 0 else values.reshape(-1)


def whole_versions(base: str, last_file: str = GRAPH_FILE) -> list[int]:
    """Numbers of the versions in a directory that have their last file, ascending."""
    return [n for n in _numbers(base) if files.exists(f"{path_of(base, n)}/{last_file}")]


def newest_version(base: str) -> str | None:
    """Path of the newest whole version; None if there is none."""
    for number in reversed(_numbers(base)):
        path = path_of(base, number)
        if files.exists(f"{path}/{GRAPH_FILE}"):
            return path
    return None


def next_version(base: str) -> str:
    """Path of the version after all that are there, whole or not."""
    return path_of(base, max(_numbers(base), default=0) + 1)


def path_of(base: str, number: int) -> str:
    return posixpath.join(base, str(number))


def refused_path(base: str) -> str:
    """Where a model goes that must not become the newest version; no server looks there."""
    return posixpath.join(base, _REFUSED)


def delete_old(base: str, keep: int, last_file: str = GRAPH_FILE) -> None:
    """Deletes all but the newest whole versions, the oldest first, and what is not whole before."""
    stay = whole_versions(base, last_file)[-keep:]
    for number in _numbers(base):
        if stay and number < stay[0]:
            path = path_of(base, number)
            files.remove(f"{path}/{last_file}")  # first: no server takes what is left for a model
            files.remove_tree(path)


def _numbers(base: str) -> list[int]:
    try:
        names = files.names(base)
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())
