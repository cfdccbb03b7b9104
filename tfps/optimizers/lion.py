"""Lion on the ps."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.slot import Slot
from tfps.optimizers.update_rule import UpdateRule


class Lion(UpdateRule):
    """`keras.optimizers.Lion`: the sign of a mean of gradients (Chen et al., 2023, algorithm 2).

    TensorFlow has no kernel for it.
    """

    drifts = True

    def __init__(self, optimizer: keras.optimizers.Lion):
        super().__init__(optimizer)
        self.slots = {"momentum": Slot(kept=self.config["beta_2"])}

    def sparse(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """See `UpdateRule`."""
        beta_1, beta_2 = (tf.constant(self.config[name]) for name in ("beta_1", "beta_2"))
        direction = tf.sign(slots[0] * beta_1 + gradient * (1.0 - beta_1))
        momentum = slots[0] * beta_2 + gradient * (1.0 - beta_2)
        return [rows - self.learning_rate(step) * direction, momentum]

    def drift(
        self, slots: Sequence[tf.Tensor], missed: MissedUpdates, kept: float | tf.Tensor
    ) -> tf.Tensor:
        """See `UpdateRule`: each of the missed updates takes its learning rate times the sign."""
        total = self.mean_learning_rate(missed) * missed.series(1.0, kept)
        return -total * tf.sign(slots[0])
