"""One logical tensor with its slots, in parts on the ps."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfps.optimizers.slot import Slot
from tfps.optimizers.update_rule import Update
from tfps.store.partitioned_variable import Piece


class Partition:
    """A tensor cut along its first dimension, one run of rows per ps; slots of its shape beside.

    Attributes:
        parts: The variables, one per ps.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        bounds: Callable[[int], tuple[int, int]],
        devices: Sequence[str],
        initial: Callable[[int], tf.Tensor],
        slots: Mapping[str, Slot],
    ):
        """Creates every part on its ps.

        Args:
            name: Name of the tensor in checkpoints.
            shape: Shape of the tensor.
            bounds: For a part, its first row and the one after its last.
            devices: One per ps.
            initial: For a part, its initial value; called under the device of its ps.
            slots: The slots, by name.
        """
        self.parts: list[tf.Variable] = []
        self._name, self._shape, self._bounds, self._devices = name, shape, bounds, devices
        self._slot_names = list(slots)
        self._slots: list[list[tf.Variable]] = []
        for part, device in enumerate(devices):
            first, end = bounds(part)
            with tf.device(device):
                self.parts.append(tf.Variable(initial(part), trainable=False))
                starts = [
                    tf.fill([end - first, *shape[1:]], tf.constant(slot.start, tf.float32))
                    for slot in slots.values()
                ]
                self._slots.append([tf.Variable(start, trainable=False) for start in starts])

    def variables(self, part: int) -> list[tf.Variable]:
        """One part's values and each of its slots."""
        return [self.parts[part], *self._slots[part]]

    def update(self, part: int, gradient: tf.Tensor, step: tf.Tensor) -> Update:
        """A change of one part."""
        return Update(self.parts[part], self._slots[part], gradient, step)

    def pieces(self) -> list[Piece]:
        """What a checkpoint holds of the tensor and its slots."""
        names = [self._name, *(f"{self._name}/{slot}" for slot in self._slot_names)]
        pieces = []
        for part, device in enumerate(self._devices):
            first, end = self._bounds(part)
            for name, variable in zip(names, [self.parts[part], *self._slots[part]], strict=True):
                pieces.append(Piece(name, self._shape, first, end - first, device, variable))
        return pieces
