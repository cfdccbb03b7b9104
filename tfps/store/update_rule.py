"""How a gradient changes parameters, on the ps that hold them."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.errors import UserError

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


@dataclasses.dataclass(frozen=True)
class Update:
    """One change of one ps's part of the dense parameters.

    Attributes:
        variable: `[n]`.
        slots: The optimizer's state, each `[n]`, in the order of `UpdateRule.slots`.
        gradient: `[n]`.
        step: Number of updates before this one, scalar int64 on the ps.
    """

    variable: tf.Variable
    slots: Sequence[tf.Variable]
    gradient: tf.Tensor
    step: tf.Tensor


class UpdateRule(abc.ABC):
    """The mathematics of a Keras optimizer.

    `dense` changes whole variables with TensorFlow's fused kernels; `sparse` computes what becomes
    of the rows that a batch touched. Both are called while a graph is traced, under the device of
    the ps that holds the parameters.

    Attributes:
        slots: Names of the state that each parameter has.
        slot_start: What slots are filled with at first.
        config: The optimizer's config; `learning_rate` is a number or a schedule.
    """

    slots: tuple[str, ...] = ()
    slot_start: float = 0.0

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        self.config = _config(optimizer)
        for field in _UNSUPPORTED:
            if self.config.get(field):
                raise UserError(
                    f"optimizer {type(optimizer).__name__}: {field}={self.config[field]} is not "
                    "supported on parameter servers; leave it out"
                )

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
    def dense(self, update: Update) -> None:
        """Changes the whole variable and its slots."""

    @abc.abstractmethod
    def sparse(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """New values of rows of a table and of their slots.

        Args:
            rows: `[u, dim]`.
            slots: Each `[u, dim]`, in the order of `slots`.
            gradient: `[u, dim]`.
            step: Number of updates before this one, scalar int64.

        Returns:
            The rows and each slot, `[u, dim]`.
        """


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
