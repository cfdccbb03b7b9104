"""An exported model in a form in which serialized examples go to the signature served by default.

What asks for predictions and cannot name a signature, as a batch prediction of Vertex AI, gets
`serving_default`, which takes features by name. Here the two signatures exchange their names in the
SavedModel's `signature_def`, by which TensorFlow Serving finds them. `tf.saved_model.load` finds
functions by the object graph, where they keep theirs.
"""

import dataclasses
import functools
import hashlib
import json
from typing import Any

from google.protobuf.message import DecodeError

from cloud.deployment import messages
from cloud.deployment.messages import BYTES, TEXT, Field
from cloud.deployment.served_model import ServedModel
from tfps.errors import UserError
from tfps.export import schema_file
from tfps.export.names import (
    EXAMPLES_SIGNATURE,
    FEATURES_SIGNATURE,
    GRAPH_FILE,
    SCHEMA_FILE,
    WARM_UP_FILE,
)
from tfps.export.schema_file import TAKES_EXAMPLES, TAKES_FEATURES

# Files that are other ones than those of the export.
CHANGED = (GRAPH_FILE, SCHEMA_FILE)
LEFT_OUT = (WARM_UP_FILE,)  # its requests name the signatures
_NAMES = {FEATURES_SIGNATURE: EXAMPLES_SIGNATURE, EXAMPLES_SIGNATURE: FEATURES_SIGNATURE}
_BOTH = {FEATURES_SIGNATURE: TAKES_FEATURES, EXAMPLES_SIGNATURE: TAKES_EXAMPLES}


def can_exchange(model: ServedModel) -> bool:
    """Whether a model has both signatures, as an export names them."""
    return {name: model.signatures.get(name) for name in _BOTH} == _BOTH


def exchanged(model: ServedModel) -> ServedModel:
    """A model as it is served with the names of its two signatures exchanged.

    Args:
        model: One that has both.
    """
    return dataclasses.replace(
        model,
        signatures={_NAMES.get(name, name): takes for name, takes in model.signatures.items()},
        has_warm_up=False,
        is_exchanged=True,
        digest=exchanged_digest(model.digest),
    )


def exchanged_digest(digest: str) -> str:
    """What tells such a model from any other's, and from the one that is exported.

    Args:
        digest: Of the model that is exported.
    """
    return hashlib.sha256(f"{digest}\0{EXAMPLES_SIGNATURE}".encode()).hexdigest()


def changed_files(graph: bytes, schema: bytes, where: str) -> dict[str, bytes]:
    """The files that differ where the names of the two signatures are exchanged.

    Args:
        graph: Content of `saved_model.pb`.
        schema: Content of `schema.json`.
        where: Directory of the version, for messages.

    Returns:
        Contents by the files' names: those of `CHANGED`.

    Raises:
        UserError: If the graph is none of a SavedModel with both signatures.
    """
    new_graph = _exchanged_graph(graph, f"{where}/{GRAPH_FILE}")
    content = schema_file.decode(schema, f"{where}/{SCHEMA_FILE}")
    takes = content.get("signatures", schema_file.SIGNATURES)
    content["signatures"] = {_NAMES.get(name, name): each for name, each in takes.items()}
    if sizes := content.get("sizes"):
        kept = {name: size for name, size in sizes.items() if name not in LEFT_OUT}
        content["sizes"] = {**kept, GRAPH_FILE: len(new_graph)}
    return {GRAPH_FILE: new_graph, SCHEMA_FILE: json.dumps(content, indent=1).encode()}


def _exchanged_graph(graph: bytes, where: str) -> bytes:
    try:
        saved = _saved_model_class().FromString(graph)
    except DecodeError:
        raise UserError(f"{where} is not a SavedModel's graph; export the model again") from None
    for each in saved.meta_graphs:
        found = [entry for entry in each.signature_def if entry.key in _NAMES]
        if len(found) != len(_NAMES):
            raise UserError(
                f"{where} has not both signatures, {FEATURES_SIGNATURE} and {EXAMPLES_SIGNATURE}; "
                "export the model again"
            )
        for entry in found:
            entry.key = _NAMES[entry.key]
    return bytes(saved.SerializeToString())


@functools.cache
def _saved_model_class() -> Any:
    return messages.class_of(
        {
            "SavedModel": [Field("meta_graphs", 2, "MetaGraphDef", is_repeated=True)],
            "MetaGraphDef": [Field("signature_def", 5, "Entry", is_repeated=True)],
            "Entry": [Field("key", 1, TEXT), Field("value", 2, BYTES)],
        }
    )
