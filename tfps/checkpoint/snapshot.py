"""The parameters as they were at a moment, whatever is trained since."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfps.checkpoint.trace_now import trace_now
from tfps.store.partitioned_variable import TensorSlice


class Snapshot:
    """A second variable for every slice, on the same ps, which holds nothing between two saves.

    To take it takes no time: the two variables share memory until one is written to, which then
    gets new memory. So the first update after it costs a copy, on its ps.

    Attributes:
        slices: The second variables.
    """

    def __init__(self, slices: Sequence[TensorSlice]):
        self._sources = slices
        self.slices = [dataclasses.replace(slice_, variable=_empty(slice_)) for slice_ in slices]
        self._take = trace_now(self._assign_sources)
        self._clear = trace_now(self._assign_nothing)

    def take(self) -> None:
        """Takes what the store holds now, while no worker is changing it."""
        self._take()

    def clear(self) -> None:
        """Lets go of it, so that its memory is free for the next."""
        self._clear()

    def _assign_sources(self) -> None:
        for source, slice_ in zip(self._sources, self.slices, strict=True):
            with tf.device(slice_.device):
                slice_.variable.assign(source.read(), read_value=False)

    def _assign_nothing(self) -> None:
        for slice_ in self.slices:
            with tf.device(slice_.device):
                nothing = tf.zeros([0], slice_.variable.dtype)
                slice_.variable.assign(nothing, read_value=False)


def _empty(slice_: TensorSlice) -> tf.Variable:
    with tf.device(slice_.device):
        nothing = tf.zeros([0], slice_.variable.dtype)
        return tf.Variable(nothing, trainable=False, shape=tf.TensorShape(None))
