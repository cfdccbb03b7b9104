"""The dense parameters of a model on the ps, with their slots."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.store.dense_layout import DenseLayout
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
        self._parts: list[tf.Variable] = []
        self._slots: list[list[tf.Variable]] = []
        for part, device in enumerate(devices):
            first, end = layout.bounds(part)
            with tf.device(device):
                self._parts.append(tf.Variable(initial[first:end], trainable=False))
                start = tf.fill([end - first], tf.constant(rule.slot_start, tf.float32))
                self._slots.append([tf.Variable(start, trainable=False) for _ in rule.slots])

    def pull(self) -> list[tf.Tensor]:
        """Every dense variable's value."""
        parts = []
        for device, variable in zip(self._devices, self._parts, strict=True):
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
                self._rule.dense(self._parts[part], self._slots[part], gradient, steps[part])

    def pieces(self) -> list[Piece]:
        """What a checkpoint holds of the dense parameters."""
        pieces = []
        for part, device in enumerate(self._devices):
            first, end = self.layout.bounds(part)
            names = ["dense", *(f"dense/{slot}" for slot in self._rule.slots)]
            variables = [self._parts[part], *self._slots[part]]
            for name, variable in zip(names, variables, strict=True):
                pieces.append(
                    Piece(name, (self.layout.total,), first, end - first, device, variable)
                )
        return pieces
