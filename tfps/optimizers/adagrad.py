"""Adagrad on the ps."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfps.optimizers.slot import Slot
from tfps.optimizers.update_rule import Update, UpdateRule, squared


class Adagrad(UpdateRule):
    """`keras.optimizers.Adagrad`.

    Keras divides by `sqrt(accumulator + epsilon)`, TensorFlow's kernel by `sqrt(accumulator) +
    epsilon`. The slot therefore holds Keras's accumulator plus epsilon, and the kernel's own
    epsilon is 0: the same division.
    """

    fused = True
    takes_squares = True

    def __init__(self, optimizer: keras.optimizers.Adagrad):
        super().__init__(optimizer)
        start = self.config["initial_accumulator_value"] + self.config["epsilon"]
        self.slots = {"accumulator": Slot(start, is_square=True)}

    def dense(self, update: Update) -> list[tf.Operation]:
        return [
            tf.raw_ops.ResourceApplyAdagradV2(
                var=update.variable.handle,
                accum=update.slots[0].handle,
                lr=self.learning_rate(update.step),
                epsilon=0.0,
                grad=update.gradient,
            )
        ]

    def sparse(
        self,
        rows: tf.Tensor,
        slots: Sequence[tf.Tensor],
        gradient: tf.Tensor,
        step: tf.Tensor,
        squares: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        accumulator = slots[0] + squared(gradient, squares)
        rate = self.learning_rate(step)
        return [rows - rate * gradient * tf.math.rsqrt(accumulator), accumulator]
