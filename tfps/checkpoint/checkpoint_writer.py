"""Writes the parameters of a checkpoint, a full one or an increment."""

import posixpath
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.increment import Increment
from tfps.checkpoint.part_file import PREFIX
from tfps.checkpoint.piece_writer import PieceWriter
from tfps.checkpoint.ready_graph import ready_graph
from tfps.checkpoint.writer import RowWriter
from tfps.store.partitioned_variable import Piece


class CheckpointWriter:
    """Writes the same pieces as often as wanted, as a TensorFlow checkpoint."""

    def __init__(self, pieces: Sequence[Piece]):
        """Makes the graphs.

        Args:
            pieces: What to write.
        """
        self._all = PieceWriter(pieces)
        self._untracked = PieceWriter([piece for piece in pieces if not piece.touched])
        self._rows = RowWriter([piece for piece in pieces if piece.touched])
        self._join = ready_graph(
            _join, [tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.string)]
        )

    def write(self, directory: str, increment: Increment | None) -> None:
        """Writes everything, or what an increment holds; joins the indices of all that was written.

        Raises:
            tf.errors.OpError: If a ps cannot write, or is lost.
        """
        if increment is None:
            written = self._all.write(directory)
        else:
            written = self._untracked.write(directory) + self._rows.write(directory, increment)
        self._join(tf.constant(written, tf.string), tf.constant(posixpath.join(directory, PREFIX)))


def _join(prefixes: tf.Tensor, prefix: tf.Tensor) -> tf.Tensor:
    joined = tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix)
    with tf.control_dependencies([joined]):
        return tf.identity(prefix)
