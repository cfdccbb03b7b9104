"""The rule of tables that are not trained."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.optimizers.update_rule import UpdateRule


class Frozen(UpdateRule):
    """Changes nothing: what Keras does with a layer that has `trainable=False`."""

    changes_nothing = True

    def __init__(self) -> None:
        super().__init__(keras.optimizers.SGD(0.0))
        self.slots = {}

    def sparse(
        self,
        rows: tf.Tensor,
        slots: Sequence[tf.Tensor],
        gradient: tf.Tensor,
        step: tf.Tensor,
        squares: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        return [rows]
