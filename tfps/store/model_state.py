"""The state of a model on its ps: what no gradient changes, such as BatchNorm statistics."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.store.layout import DenseLayout
from tfps.store.mutex import Mutex
from tfps.store.partitioned_variable import TensorSlice


class ModelState:
    """State variables laid end to end, whole, on one ps.

    Several workers change the same state, each from the value that it pulled. Where a step makes
    `kept * old + something` of a variable, a worker pushes the something, and the ps makes the step
    from the value that it has: a moving average stays one, and a counter exact, however stale the
    pull was. A variable for which that does not hold becomes a mean of what the ps has and what the
    worker made of it, which lies between the two.

    Attributes:
        is_recurrent: Whether it holds for all of them.
        changes: Whether training changes any of them.
    """

    def __init__(
        self,
        layout: DenseLayout,
        kept: Sequence[float | None],
        changes: bool,
        initial: np.ndarray,
        device: str,
    ):
        """Creates the variable on its ps.

        Args:
            layout: The state variables, in one part.
            kept: For each, what a step keeps of it, None where that is not known.
            changes: Whether training changes any of them.
            initial: Their initial values, laid end to end, float32.
            device: Of the ps.
        """
        self._layout = layout
        self._device = device
        self.changes = changes
        self._kept = [factor or 0.0 for factor in kept]
        self._is_mixed = [factor is None for factor in kept]
        self.is_recurrent = not any(self._is_mixed)
        self._step = Mutex("state", device).guard(self._stepped)
        with tf.device(device):
            self._values = tf.Variable(initial, trainable=False)

    def pull(self, after: Sequence[tf.Tensor] = ()) -> list[tf.Tensor]:
        """Every state variable's value.

        Args:
            after: What the ps waits for before it reads.
        """
        if not self._layout.shapes:
            return []
        with tf.device(self._device), tf.control_dependencies(after):
            values = self._values.read_value()
        return self._layout.unflatten(values)

    def increment(
        self,
        before: Sequence[tf.Tensor],
        after: Sequence[tf.Tensor],
        earlier: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """What a step adds to what it keeps of the state, `[n]`; the value, where that is unknown.

        Args:
            before: The state variables when it begins.
            after: And at its end.
            earlier: What the steps before it, of the same pull, have added together; the result is
                then what all of them add.
        """
        added = [
            tf.reshape(new - kept * old, [-1])
            for new, old, kept in zip(after, before, self._kept, strict=True)
        ]
        total = tf.concat(added, 0)
        return total if earlier is None else self._layout.each(self._kept) * earlier + total

    def push(
        self, increment: tf.Tensor, steps: int = 1, share: float | tf.Tensor = 1.0
    ) -> tf.Tensor:
        """Makes steps from the state that the ps has.

        Args:
            increment: What `increment` returned.
            steps: Of how many steps.
            share: The increment's part in the mean, for a variable that is not recurrent; scalar.

        Returns:
            What is there once it is written.
        """
        with tf.device(self._device):
            return self._step(tf.identity(increment), steps, tf.convert_to_tensor(share))

    def add(self, change: tf.Tensor) -> tf.Operation:
        """Adds a change `[n]` that is the mean of those of all who pulled this very state."""
        with tf.device(self._device):
            return self._values.assign_add(change, read_value=False)

    def read(self) -> list[np.ndarray]:
        """Every state variable's value, on the chief."""
        return [value.numpy() for value in self._layout.unflatten(self._values.read_value())]

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds of the state; empty for a model without any."""
        total = self._layout.total
        if not total:
            return []
        return [TensorSlice("state", (total,), 0, total, self._device, self._values)]

    def _stepped(
        self, added: tf.Tensor, steps: int, share: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        """What the mutex guards: `push` on the ps."""
        before = self._values.read_value()
        values = self._layout.each([factor**steps for factor in self._kept]) * before + added
        if not self.is_recurrent:
            mean = (1.0 - share) * before + share * added
            values = tf.where(self._layout.each(self._is_mixed), mean, values)
        return tf.constant(True), [self._values.assign(values, read_value=False)]
