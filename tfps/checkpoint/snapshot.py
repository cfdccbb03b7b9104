"""The parameters as they were at a moment, whatever is trained since."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.ready_graph import ready_graph
from tfps.store.partitioned_variable import Piece


class Snapshot:
    """A second variable for every piece, on the same ps, which holds nothing between two saves.

    To take it takes no time: the two variables share memory until one is written to, which then
    gets new memory. So the first update after it costs a copy, on its ps.

    Attributes:
        pieces: The second variables.
    """

    def __init__(self, pieces: Sequence[Piece]):
        """Makes variables without values.

        Args:
            pieces: Of the store.
        """
        self._sources = pieces
        self.pieces = [dataclasses.replace(piece, variable=_empty(piece)) for piece in pieces]
        self._take = ready_graph(self._assign_sources)
        self._clear = ready_graph(self._assign_nothing)

    def take(self) -> None:
        """Takes what the store holds now, while no worker is changing it."""
        self._take()

    def clear(self) -> None:
        """Lets go of it, so that its memory is free for the next."""
        self._clear()

    def _assign_sources(self) -> None:
        for source, piece in zip(self._sources, self.pieces, strict=True):
            with tf.device(piece.device):
                piece.variable.assign(source.read(), read_value=False)

    def _assign_nothing(self) -> None:
        for piece in self.pieces:
            with tf.device(piece.device):
                nothing = tf.zeros([0], piece.variable.dtype)
                piece.variable.assign(nothing, read_value=False)


def _empty(piece: Piece) -> tf.Variable:
    with tf.device(piece.device):
        nothing = tf.zeros([0], piece.variable.dtype)
        return tf.Variable(nothing, trainable=False, shape=tf.TensorShape(None))
