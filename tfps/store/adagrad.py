"""Adagrad on the ps."""

from typing import Any

import keras
import tensorflow as tf

from tfps.store.update_rule import Update, UpdateRule


class Adagrad(UpdateRule):
    """`keras.optimizers.Adagrad`.

    Keras divides by `sqrt(accumulator + epsilon)`, TensorFlow's kernel by `sqrt(accumulator) +
    epsilon`. The slot therefore holds Keras's accumulator plus epsilon, and the kernel's own
    epsilon is 0: the same division.
    """

    slots = ("accumulator",)

    def __init__(self, optimizer: keras.optimizers.Adagrad):
        super().__init__(optimizer)
        self.slot_start = self.config["initial_accumulator_value"] + self.config["epsilon"]

    def dense(self, update: Update) -> None:
        """See `UpdateRule`."""
        tf.raw_ops.ResourceApplyAdagradV2(**self._arguments(update))

    def sparse(self, update: Update, rows: tf.Tensor) -> None:
        """See `UpdateRule`."""
        tf.raw_ops.ResourceSparseApplyAdagradV2(indices=rows, **self._arguments(update))

    def _arguments(self, update: Update) -> dict[str, Any]:
        return {
            "var": update.variable.handle,
            "accum": update.slots[0].handle,
            "lr": self.learning_rate(update.step),
            "epsilon": 0.0,
            "grad": update.gradient,
        }
