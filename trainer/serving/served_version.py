"""One version of an exported model, loaded and tried."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import tensorflow as tf
from google.protobuf.message import Message

from tfps.errors import UserError, reason_of
from tfps.export.exported_files import EXAMPLES_INPUT, EXAMPLES_SIGNATURE, FEATURES_SIGNATURE
from tfps.export.loaded_model import ExportedModel
from tfps.export.serving_model import read_signature_defs
from tfps.export.versions import WarmUpRequest, read_warm_up
from tfps.model.inputs import unpack_signature_inputs


@dataclasses.dataclass(frozen=True)
class ServedVersion:
    """A version that can be asked.

    Attributes:
        records: Tensors `[n, *shape]` of some real records by feature name, ragged for shape
            `(None,)`; none where the export has none.
    """

    number: int
    model: ExportedModel
    signature_defs: Message
    records: Mapping[str, Any]

    @classmethod
    def load(cls, directory: str, number: int, beside_bytes: int = 0) -> Self:
        """Loads a version, and asks it what it is to be asked before anybody else does."""
        model = ExportedModel.load(directory, beside_bytes)
        signature_defs = read_signature_defs(directory)
        try:
            requests = read_warm_up(directory)
            for request in requests:
                _try(model, request)
        except (tf.errors.OpError, ValueError, LookupError, TypeError) as error:
            raise UserError(
                f"--model={directory}: its warm-up requests cannot be used ({reason_of(error)}); "
                "export the model again"
            ) from None
        return cls(number, model, signature_defs, _most_records(requests, model))


def _try(model: ExportedModel, request: WarmUpRequest) -> None:
    if request.signature == FEATURES_SIGNATURE:
        model.predict(_features(request, model))
    elif request.signature == EXAMPLES_SIGNATURE:
        model.predict_examples(request.inputs[EXAMPLES_INPUT].tolist())


def _features(request: WarmUpRequest, model: ExportedModel) -> dict[str, Any]:
    inputs = {name: tf.constant(value) for name, value in request.inputs.items()}
    return unpack_signature_inputs(inputs, model.features)


def _most_records(requests: Sequence[WarmUpRequest], model: ExportedModel) -> Mapping[str, Any]:
    found = [_features(x, model) for x in requests if x.signature == FEATURES_SIGNATURE]
    first = model.features[0].name
    return max(found, key=lambda records: int(records[first].shape[0]), default={})
