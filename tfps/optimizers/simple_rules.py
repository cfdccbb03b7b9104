"""Adagrad, Lion, RMSprop and gradient descent on the ps, and what changes nothing."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.outlook import Series
from tfps.optimizers.step_sums import LOG_KEPT, StepSums
from tfps.optimizers.update_rule import RowUpdate, Slot, Tensors, Update, UpdateRule

_LEAST = float(np.finfo(np.float32).tiny)


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
        return self.kernel(tf.raw_ops.ResourceApplyAdagradV2, update, ["accum"], epsilon=0.0)

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        rows, slots, gradient, step, _ = update
        accumulator = slots[0] + update.squared
        rate = self.learning_rate(step)
        return [rows - rate * gradient * tf.math.rsqrt(accumulator), accumulator]


class Frozen(UpdateRule):
    """Changes nothing: what Keras does with a layer that has `trainable=False`."""

    changes_nothing = True

    def __init__(self) -> None:
        super().__init__(keras.optimizers.SGD(0.0))
        self.slots = {}

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        return [update.rows]


class Lion(UpdateRule):
    """`keras.optimizers.Lion`: the sign of a mean of gradients (Chen et al., 2023, algorithm 2).

    TensorFlow has no kernel for it.
    """

    drifts = True

    def __init__(self, optimizer: keras.optimizers.Lion):
        super().__init__(optimizer)
        self.slots = {"momentum": Slot(kept=self.config["beta_2"])}

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        rows, slots, gradient, step, _ = update
        beta_1, beta_2 = (tf.constant(self.config[name]) for name in ("beta_1", "beta_2"))
        direction = tf.sign(slots[0] * beta_1 + gradient * (1.0 - beta_1))
        momentum = slots[0] * beta_2 + gradient * (1.0 - beta_2)
        return [rows - self.learning_rate(step) * direction, momentum]

    def drift(self, slots: Tensors, missed: MissedUpdates, decays: bool) -> tf.Tensor:
        """The sum of the learning rates of the missed updates, times the sign."""
        # Until Keras's momentum is less than float32 holds: then it is 0, and so is its sign.
        sums, count, sign = self.sums(decays), missed.count, tf.sign(slots[0])
        moves = tf.minimum(self._moves(slots[0]), count)

        def moved(moves: tf.Tensor) -> tf.Tensor:
            return tf.cast(self._moved(sums, missed, moves), tf.float32) * tf.ones_like(sign)

        # A sum for each value of a row, instead of one for the row, is rarely needed.
        is_over = tf.reduce_any(moves < count)
        return -sign * tf.cond(is_over, lambda: moved(moves), lambda: moved(count))

    def _moves(self, momentum: tf.Tensor) -> tf.Tensor:
        """The number of updates without a gradient in which momentum has a sign, float64."""
        beta_2 = self.config["beta_2"]
        last = self.config["beta_1"] * tf.cast(tf.abs(momentum), tf.float64)
        if not 0.0 < beta_2 < 1.0:
            return tf.cast(last >= _LEAST, tf.float64) * (1e300 if beta_2 else 1.0)
        more = tf.math.log(tf.maximum(last, 0.1 * _LEAST) / _LEAST) / -math.log(beta_2)
        return tf.maximum(tf.floor(more) + 1.0, 0.0) * tf.cast(last >= _LEAST, tf.float64)

    def _moved(self, sums: StepSums, missed: MissedUpdates, moves: tf.Tensor) -> tf.Tensor:
        """What the first of the missed updates add to a row, divided by the sign."""
        # With weight decay a row comes nearer to `1 / weight_decay` by the part that decays.
        end = missed.first + moves
        weight_decay = sums.weight_decay
        if not weight_decay:
            return sums.between(missed.first, end)
        log_kept = sums.between(missed.first, end, LOG_KEPT)
        gone = tf.where(
            sums.is_flipped(missed.first, end), 1.0 + tf.exp(log_kept), -tf.math.expm1(log_kept)
        )
        return gone / weight_decay * sums.kept(end, missed.end)


class RmsProp(UpdateRule):
    """`keras.optimizers.RMSprop`, with momentum and centered.

    TensorFlow's kernels need a momentum slot even where there is no momentum; memory counts for
    more than a kernel then. Centered, velocity less the square of the average gradient is a
    variance: where rounding makes it negative it is taken as 0, while Keras and TensorFlow's kernel
    take the root of a negative number.
    """

    takes_squares = True

    def __init__(self, optimizer: keras.optimizers.RMSprop):
        super().__init__(optimizer)
        self._momentum = self.drifts = self.config["momentum"] > 0
        self.series = Series(self.config["momentum"]) if self.drifts else None
        self._centered = self.config["centered"]
        self.fused = self._momentum and not self._centered
        self.slots = {"velocity": Slot(kept=self.config["rho"], is_square=True)}
        if self._momentum:
            self.slots["momentum"] = Slot(kept=self.config["momentum"])
        if self._centered:
            self.slots["average_gradient"] = Slot(kept=self.config["rho"])

    def dense(self, update: Update) -> list[tf.Operation]:
        if not self.fused:
            return super().dense(update)
        options = {name: self.config[name] for name in ("rho", "momentum", "epsilon")}
        return self.kernel(tf.raw_ops.ResourceApplyRMSProp, update, ["ms", "mom"], **options)

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        rows, slots, gradient, step, _ = update
        rho = self.config["rho"]
        velocity = rho * slots[0] + (1.0 - rho) * update.squared
        spread, averages, momenta = velocity, [], []
        if self._centered:
            averages = [rho * slots[-1] + (1.0 - rho) * gradient]
            spread = tf.maximum(velocity - tf.square(averages[0]), 0.0)
        scaled = gradient * tf.math.rsqrt(spread + self.config["epsilon"])
        change = self.learning_rate(step) * scaled
        if self._momentum:
            change += self.config["momentum"] * slots[1]
            momenta = [change]
        return [rows - change, velocity, *momenta, *averages]

    def drift(self, slots: Tensors, missed: MissedUpdates, decays: bool) -> tf.Tensor:
        return -tf.cast(self.missed_series(missed, decays).whole(), tf.float32) * slots[1]


class Sgd(UpdateRule):
    """`keras.optimizers.SGD`, with momentum and Nesterov's."""

    fused = True

    def __init__(self, optimizer: keras.optimizers.SGD):
        super().__init__(optimizer)
        momentum = self.config["momentum"]
        self.drifts = momentum > 0
        self.series = Series(momentum) if self.drifts else None
        self.slots = {"momentum": Slot(kept=momentum)} if momentum else {}

    def dense(self, update: Update) -> list[tf.Operation]:
        if update.slots:
            options = {"momentum": self.config["momentum"], "use_nesterov": self.config["nesterov"]}
            kernel = tf.raw_ops.ResourceApplyKerasMomentum
            return self.kernel(kernel, update, ["accum"], **options)
        rate, variable = self.learning_rate(update.step), update.variable.handle
        descend = tf.raw_ops.ResourceApplyGradientDescent
        return [descend(var=variable, alpha=rate, delta=update.gradient)]

    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        rows, slots, gradient, step, _ = update
        change = -self.learning_rate(step) * gradient
        if not slots:
            return [rows + change]
        momentum = self.config["momentum"] * slots[0] + change
        if self.config["nesterov"]:
            change += self.config["momentum"] * momentum
        else:
            change = momentum
        return [rows + change, momentum]

    def drift(self, slots: Tensors, missed: MissedUpdates, decays: bool) -> tf.Tensor:
        """The sum of `momentum^j` of the slot, or `momentum^(j + 1)` with Nesterov's momentum."""
        factor = self.config["momentum"] if self.config["nesterov"] else 1.0
        return tf.cast(self.missed_series(missed, decays).whole() * factor, tf.float32) * slots[0]
