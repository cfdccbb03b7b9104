"""Writes parameters to the files of a checkpoint."""

import posixpath
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.part_file import PREFIX
from tfps.store.piece import Piece


class PieceWriter:
    """Writes the same pieces as often as wanted, as a TensorFlow checkpoint of logical tensors.

    Its graph is made once, before anything is trained: TensorFlow tells every task of a new graph
    and waits for each, which would let one worker that hangs stop the chief.
    """

    def __init__(self, pieces: Sequence[Piece]):
        """Makes the graph.

        Args:
            pieces: What to write.
        """
        self._pieces = pieces
        signature = [tf.TensorSpec([], tf.string)]
        self._save = tf.function(self._graph, signature, autograph=False).get_concrete_function()

    def write(self, directory: str) -> None:
        """Writes all pieces, each ps its own at the same time, and joins their indices.

        Raises:
            tf.errors.OpError: If a ps cannot write, or is lost.
        """
        self._save(tf.constant(posixpath.join(directory, PREFIX)))

    def _graph(self, prefix: tf.Tensor) -> None:
        prefixes, saves = [], []
        for number, device in enumerate(dict.fromkeys(piece.device for piece in self._pieces)):
            mine = [piece for piece in self._pieces if piece.device == device]
            chunks = [(piece, chunk) for piece in mine for chunk in piece.chunks()]
            if not chunks:  # fewer values than ps
                continue
            part = tf.strings.join([prefix, f".part-{number}"])
            with tf.device(device):
                written = tf.raw_ops.SaveV2(
                    prefix=part,
                    tensor_names=[piece.name for piece, _ in chunks],
                    shape_and_slices=[piece.slice_spec(*chunk) for piece, chunk in chunks],
                    tensors=[value for piece in mine for value in piece.values()],
                )
            prefixes.append(part)
            saves.append(written)
        with tf.control_dependencies(saves):
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=tf.stack(prefixes), destination_prefix=prefix
            )
