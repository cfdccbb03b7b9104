"""Lion on the ps."""

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.slot import Slot
from tfps.optimizers.step_sums import StepSums
from tfps.optimizers.update_rule import UpdateRule

_LEAST = float(np.finfo(np.float32).tiny)


class Lion(UpdateRule):
    """`keras.optimizers.Lion`: the sign of a mean of gradients (Chen et al., 2023, algorithm 2).

    TensorFlow has no kernel for it.
    """

    drifts = True

    def __init__(self, optimizer: keras.optimizers.Lion):
        super().__init__(optimizer)
        self.slots = {"momentum": Slot(kept=self.config["beta_2"])}

    def sparse(
        self,
        rows: tf.Tensor,
        slots: Sequence[tf.Tensor],
        gradient: tf.Tensor,
        step: tf.Tensor,
        squares: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        beta_1, beta_2 = (tf.constant(self.config[name]) for name in ("beta_1", "beta_2"))
        direction = tf.sign(slots[0] * beta_1 + gradient * (1.0 - beta_1))
        momentum = slots[0] * beta_2 + gradient * (1.0 - beta_2)
        return [rows - self.learning_rate(step) * direction, momentum]

    def drift(self, slots: Sequence[tf.Tensor], missed: MissedUpdates, decays: bool) -> tf.Tensor:
        """See `UpdateRule`: each of the missed updates takes its learning rate times the sign.

        Until Keras's momentum is less than float32 holds: then it is 0, and so is its sign.
        """
        sums, count, sign = self.sums(decays), missed.count, tf.sign(slots[0])
        moves = tf.minimum(self._moves(slots[0]), count)

        def moved(moves: tf.Tensor) -> tf.Tensor:
            return tf.cast(self._moved(sums, missed, moves), tf.float32) * tf.ones_like(sign)

        # A sum for each value of a row, instead of one for the row, is rarely needed.
        is_over = tf.reduce_any(moves < count)
        return -sign * tf.cond(is_over, lambda: moved(moves), lambda: moved(count))

    def _moves(self, momentum: tf.Tensor) -> tf.Tensor:
        """The number of updates without a gradient in which momentum has a sign, float64.

        TensorFlow's kernels take what is below the least normal number for 0.
        """
        beta_2 = self.config["beta_2"]
        last = self.config["beta_1"] * tf.cast(tf.abs(momentum), tf.float64)
        if not 0.0 < beta_2 < 1.0:
            return tf.cast(last >= _LEAST, tf.float64) * (1e300 if beta_2 else 1.0)
        more = tf.math.log(tf.maximum(last, 0.1 * _LEAST) / _LEAST) / -math.log(beta_2)
        return tf.maximum(tf.floor(more) + 1.0, 0.0) * tf.cast(last >= _LEAST, tf.float64)

    def _moved(self, sums: StepSums, missed: MissedUpdates, moves: tf.Tensor) -> tf.Tensor:
        """What so many of the missed updates add to a row, divided by the sign.

        With weight decay a row comes nearer to `1 / weight_decay` by the part that decays.
        """
        end = missed.first + moves
        weight_decay = sums.weight_decay
        if not weight_decay:
            return sums.between(missed.first, end)
        log_kept = sums.log_kept(missed.first, end)
        gone = tf.where(
            sums.is_flipped(missed.first, end), 1.0 + tf.exp(log_kept), -tf.math.expm1(log_kept)
        )
        return gone / weight_decay * sums.kept(end, missed.end)
