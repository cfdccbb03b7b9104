"""What a SavedModel's graph file says of its signatures, as servers of TensorFlow's tell it."""

import posixpath
from collections.abc import Mapping

import tensorflow as tf
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap

from tfps.errors import UserError
from tfps.export.names import GRAPH_FILE
from tfps.storage import files

# TensorFlow registers the message, but has no public name for it.
_SavedModel = message_factory.GetMessageClass(
    descriptor_pool.Default().FindMessageTypeByName("tensorflow.SavedModel")
)


def read_signature_defs(directory: str) -> SignatureDefMap:
    """The signatures of a SavedModel: names, dtypes and shapes of their inputs and outputs."""
    path = posixpath.join(directory, GRAPH_FILE)
    try:
        graphs = _SavedModel.FromString(files.read(path)).meta_graphs
    except DecodeError:
        raise UserError(f"{path} is not a SavedModel's graph; export the model again") from None
    if len(graphs) != 1:
        raise UserError(f"{path} has {len(graphs)} graphs, not one; export the model again")
    found = SignatureDefMap()
    for name, signature in graphs[0].signature_def.items():
        found.signature_def[name].CopyFrom(signature)
    return found


def rename_inputs(directory: str, signature: str, names: Mapping[str, str]) -> None:
    """Gives inputs of a signature other names, for servers of TensorFlow's.

    `tf.saved_model.load` finds functions by the object graph, where they keep theirs.
    """
    path = posixpath.join(directory, GRAPH_FILE)
    with tf.io.gfile.GFile(path, "rb") as file:
        saved = _SavedModel.FromString(file.read())
    for graph in saved.meta_graphs:
        inputs = graph.signature_def[signature].inputs
        for present, name in names.items():
            inputs[name].CopyFrom(inputs[present])
            del inputs[present]
    tf.io.gfile.remove(path)  # in TensorFlow's ram:// what is written is appended
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))
