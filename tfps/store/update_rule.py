"""The mathematics of a Keras optimizer as TensorFlow kernels that run on the ps."""

import abc
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.errors import UserError

Slots = Sequence[tf.Variable]

_UNSUPPORTED = (
    "weight_decay",
    "clipnorm",
    "global_clipnorm",
    "clipvalue",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
    "amsgrad",
)


class UpdateRule(abc.ABC):
    """How a gradient changes a variable and its slots.

    `dense` updates a whole variable, `sparse` only the rows named, each of them once. Both are
    called while a graph is traced, under the device of the ps that holds the variable.
    """

    slots: tuple[str, ...] = ()
    slot_start: float = 0.0

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        config = _config(optimizer)
        for field in _UNSUPPORTED:
            if config.get(field):
                raise UserError(
                    f"optimizer {type(optimizer).__name__}: {field}={config[field]} is not "
                    "supported on parameter servers; leave it out"
                )
        self.config = config

    def signature(self) -> dict[str, Any]:
        """What must be equal for slots of one run to fit another."""
        return {"rule": type(self).__name__, "slots": list(self.slots)}

    def learning_rate(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of update number `step` (scalar int64, counted from 0)."""
        rate = self.config["learning_rate"]
        if not isinstance(rate, (int, float)):
            rate = rate(step)
        return tf.cast(rate, tf.float32)

    @abc.abstractmethod
    def dense(
        self,
        variable: tf.Variable,
        slots: Slots,
        gradient: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Updates a variable `[n]` and its slots with its gradient `[n]`."""

    @abc.abstractmethod
    def sparse(
        self,
        variable: tf.Variable,
        slots: Slots,
        gradient: tf.Tensor,
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Updates rows `[u]` of a variable `[n, dim]` and its slots, given their gradients."""


class Sgd(UpdateRule):
    """`keras.optimizers.SGD`, with momentum and Nesterov's."""

    def __init__(self, optimizer: keras.optimizers.SGD):
        super().__init__(optimizer)
        self.slots = ("momentum",) if self.config["momentum"] else ()

    def dense(
        self, variable: tf.Variable, slots: Slots, gradient: tf.Tensor, step: tf.Tensor
    ) -> None:
        """See `UpdateRule`."""
        rate = self.learning_rate(step)
        if not slots:
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
            return
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=slots[0].handle,
            lr=rate,
            grad=gradient,
            momentum=self.config["momentum"],
            use_nesterov=self.config["nesterov"],
        )

    def sparse(
        self,
        variable: tf.Variable,
        slots: Slots,
        gradient: tf.Tensor,
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """See `UpdateRule`."""
        rate = self.learning_rate(step)
        if not slots:
            tf.raw_ops.ResourceScatterSub(
                resource=variable.handle, indices=rows, updates=rate * gradient
            )
            return
        tf.raw_ops.ResourceSparseApplyKerasMomentum(
            var=variable.handle,
            accum=slots[0].handle,
            lr=rate,
            grad=gradient,
            indices=rows,
            momentum=self.config["momentum"],
            use_nesterov=self.config["nesterov"],
        )


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

    def dense(
        self, variable: tf.Variable, slots: Slots, gradient: tf.Tensor, step: tf.Tensor
    ) -> None:
        """See `UpdateRule`."""
        tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle,
            accum=slots[0].handle,
            lr=self.learning_rate(step),
            epsilon=0.0,
            grad=gradient,
        )

    def sparse(
        self,
        variable: tf.Variable,
        slots: Slots,
        gradient: tf.Tensor,
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """See `UpdateRule`."""
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=variable.handle,
            accum=slots[0].handle,
            lr=self.learning_rate(step),
            epsilon=0.0,
            grad=gradient,
            indices=rows,
        )


class Adam(UpdateRule):
    """`keras.optimizers.Adam`; for tables its lazy form, which leaves untouched rows alone.

    There is no sparse kernel, so rows are gathered, updated and scattered on the ps. Moments and
    bias correction are those of Kingma and Ba (2015), section 2, in the order Keras uses.
    """

    slots = ("momentum", "velocity")

    def dense(
        self, variable: tf.Variable, slots: Slots, gradient: tf.Tensor, step: tf.Tensor
    ) -> None:
        """See `UpdateRule`."""
        beta_1, beta_2 = self.config["beta_1"], self.config["beta_2"]
        count = tf.cast(step + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots[0].handle,
            v=slots[1].handle,
            beta1_power=tf.pow(beta_1, count),
            beta2_power=tf.pow(beta_2, count),
            lr=self.learning_rate(step),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=self.config["epsilon"],
            grad=gradient,
        )

    def sparse(
        self,
        variable: tf.Variable,
        slots: Slots,
        gradient: tf.Tensor,
        rows: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """See `UpdateRule`."""
        beta_1, beta_2 = self.config["beta_1"], self.config["beta_2"]
        count = tf.cast(step + 1, tf.float32)
        correction = tf.sqrt(1.0 - tf.pow(beta_2, count)) / (1.0 - tf.pow(beta_1, count))
        moments = []
        for slot, beta, target in zip(
            slots, (beta_1, beta_2), (gradient, tf.square(gradient)), strict=True
        ):
            old = tf.raw_ops.ResourceGather(resource=slot.handle, indices=rows, dtype=tf.float32)
            new = old + (target - old) * (1.0 - beta)
            tf.raw_ops.ResourceScatterUpdate(resource=slot.handle, indices=rows, updates=new)
            moments.append(new)
        change = moments[0] / (tf.sqrt(moments[1]) + self.config["epsilon"])
        tf.raw_ops.ResourceScatterSub(
            resource=variable.handle,
            indices=rows,
            updates=self.learning_rate(step) * correction * change,
        )


_RULES: dict[type, type[UpdateRule]] = {
    keras.optimizers.SGD: Sgd,
    keras.optimizers.Adagrad: Adagrad,
    keras.optimizers.Adam: Adam,
}


def from_optimizer(optimizer: keras.optimizers.Optimizer) -> UpdateRule:
    """The rule that does what a Keras 3 optimizer does.

    Raises:
        UserError: If the optimizer, or one of its options, has no rule.
    """
    rule = _RULES.get(type(optimizer))
    if rule is None:
        known = ", ".join(sorted(kind.__name__ for kind in _RULES))
        raise UserError(
            f"optimizer {type(optimizer).__name__} is not supported on parameter servers; "
            f"use one of keras.optimizers: {known}"
        )
    return rule(optimizer)


def _config(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """The optimizer's config, its learning rate a number or a `LearningRateSchedule`."""
    try:
        config = optimizer.get_config()
        rate = config["learning_rate"]
        if not isinstance(rate, (int, float)):
            rate = keras.optimizers.schedules.deserialize(rate)
            if not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
                raise TypeError(f"it is {rate!r}")
    except (NotImplementedError, OSError, TypeError, ValueError) as error:
        raise UserError(
            f"optimizer {type(optimizer).__name__}: its learning rate cannot be rebuilt from its "
            f"config ({error}); give a number or a LearningRateSchedule with get_config(), "
            "registered with keras.saving.register_keras_serializable"
        ) from None
    return {**config, "learning_rate": rate}
