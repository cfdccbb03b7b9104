"""Stochastic gradient descent on the ps."""

from typing import Any

import keras
import tensorflow as tf

from tfps.store.update_rule import Update, UpdateRule


class Sgd(UpdateRule):
    """`keras.optimizers.SGD`, with momentum and Nesterov's."""

    def __init__(self, optimizer: keras.optimizers.SGD):
        super().__init__(optimizer)
        self.slots = ("momentum",) if self.config["momentum"] else ()

    def dense(self, update: Update) -> None:
        """See `UpdateRule`."""
        rate = self.learning_rate(update.step)
        if update.slots:
            tf.raw_ops.ResourceApplyKerasMomentum(lr=rate, **self._momentum(update))
        else:
            tf.raw_ops.ResourceApplyGradientDescent(
                var=update.variable.handle, alpha=rate, delta=update.gradient
            )

    def sparse(self, update: Update, rows: tf.Tensor) -> None:
        """See `UpdateRule`."""
        rate = self.learning_rate(update.step)
        if update.slots:
            tf.raw_ops.ResourceSparseApplyKerasMomentum(
                lr=rate, indices=rows, **self._momentum(update)
            )
        else:
            tf.raw_ops.ResourceScatterSub(
                resource=update.variable.handle, indices=rows, updates=rate * update.gradient
            )

    def _momentum(self, update: Update) -> dict[str, Any]:
        return {
            "var": update.variable.handle,
            "accum": update.slots[0].handle,
            "grad": update.gradient,
            "momentum": self.config["momentum"],
            "use_nesterov": self.config["nesterov"],
        }
