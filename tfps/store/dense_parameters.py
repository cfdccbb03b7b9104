"""The dense parameters of a model on the ps, with their slots."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.store.dense_layout import DenseLayout
from tfps.store.partition import Partition
from tfps.store.piece import Piece
from tfps.store.update_rule import UpdateRule


class DenseParameters:
    """One flat variable per ps: one read and one write per ps and step, whatever the model.

    Reads are never torn: TensorFlow hands out a variable's buffer as it is and lets an update that
    finds it in use write to a new one.
    """

    def __init__(
        self, layout: DenseLayout, devices: Sequence[str], rule: UpdateRule, initial: np.ndarray
    ):
        self.layout = layout
        self._devices = devices
        self._rule = rule
        self._buffer = Partition(
            "dense",
            (layout.total,),
            layout.bounds,
            devices,
            lambda part: tf.constant(initial[slice(*layout.bounds(part))]),
            rule.slots,
            rule.slot_start,
        )

    def pull(self) -> list[tf.Tensor]:
        """Every dense variable's value."""
        parts = []
        for device, variable in zip(self._devices, self._buffer.parts, strict=True):
            with tf.device(device):
                parts.append(variable.read_value())
        return self.layout.unflatten(self.layout.join(parts))

    def push(self, gradients: Sequence[tf.Tensor], steps: Sequence[tf.Tensor]) -> None:
        """Applies the variables' gradients.

        Args:
            gradients: One per variable, of its shape.
            steps: For every ps, the number of updates before this one, scalar int64 on that ps.
        """
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        for part, gradient in enumerate(self.layout.cut(flat)):
            with tf.device(self._devices[part]):
                self._rule.dense(self._buffer.update(part, gradient, steps[part]))

    def pieces(self) -> list[Piece]:
        """What a checkpoint holds of the dense parameters."""
        return self._buffer.pieces()
