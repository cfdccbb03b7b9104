"""Writes parameters to the files of a checkpoint."""

import posixpath
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.part_file import PREFIX
from tfps.checkpoint.ready_graph import ready_graph
from tfps.store.partitioned_variable import Piece


class PieceWriter:
    """Writes the same pieces whole as often as wanted, as logical tensors in slices."""

    def __init__(self, pieces: Sequence[Piece]):
        """Makes the graph.

        Args:
            pieces: What to write.
        """
        devices = dict.fromkeys(piece.device for piece in pieces)
        by_device = [[piece for piece in pieces if piece.device == each] for each in devices]
        # With fewer values than ps, some have none.
        self._parts = [part for part in by_device if any(piece.count for piece in part)]
        self._save = ready_graph(self._graph, [tf.TensorSpec([], tf.string)])

    def write(self, directory: str) -> list[str]:
        """Writes all pieces, each ps its own at the same time.

        Returns:
            Prefixes of what was written, to be merged.

        Raises:
            tf.errors.OpError: If a ps cannot write, or is lost.
        """
        prefix = tf.constant(posixpath.join(directory, PREFIX))
        return [written.numpy().decode() for written in self._save(prefix)]

    def _graph(self, prefix: tf.Tensor) -> list[tf.Tensor]:
        written = []
        for number, pieces in enumerate(self._parts):
            chunks = [(piece, chunk) for piece in pieces for chunk in piece.chunks()]
            with tf.device(pieces[0].device):
                part = tf.strings.join([prefix, f".part-{number}"])
                save = tf.raw_ops.SaveV2(
                    prefix=part,
                    tensor_names=[piece.name for piece, _ in chunks],
                    shape_and_slices=[piece.slice_spec(*chunk) for piece, chunk in chunks],
                    tensors=[value for piece in pieces for value in piece.values()],
                )
                # TensorFlow runs a save only for what waits for it.
                with tf.control_dependencies([save]):
                    written.append(tf.identity(part))
        return written
