"""What a SavedModel's graph file says of its signatures, as servers of TensorFlow's tell it."""

import posixpath

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
    """The signatures of a SavedModel: names, dtypes and shapes of their inputs and outputs.

    Args:
        directory: Of the SavedModel, local or `gs://`.

    Raises:
        UserError: If its graph file is not one.
        StorageError: If the storage does not answer.
    """
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
