"""What a callback finds as its model: the few things of one that the chief can give it."""

from typing import Any, NoReturn

import keras

from tfps.errors import UserError

_SETTABLE = ("stop_training", "history")
_GIVEN = (
    "model.optimizer.learning_rate, model.optimizer.iterations and model.stop_training; the "
    "parameters lie on the ps, and their checkpoints in JOB_DIR"
)


class MissingAttributeError(UserError, AttributeError):
    """An attribute that the chief cannot give; to `hasattr` it is not there."""


class CallbackOptimizer:
    """The optimizer of the dense parameters, and of tables with an equal one."""

    def __init__(self, learning_rate: float | keras.optimizers.schedules.LearningRateSchedule):
        self.iterations = 0
        self._learning_rate: Any = learning_rate
        if isinstance(learning_rate, (int, float)):
            self._learning_rate = keras.Variable(
                learning_rate, trainable=False, dtype="float32", name="learning_rate"
            )

    @property
    def is_settable(self) -> bool:
        """Whether the learning rate is a number, and no schedule."""
        return isinstance(self._learning_rate, keras.Variable)

    @property
    def learning_rate(self) -> Any:
        """A Keras variable, as an optimizer of Keras's has it; of a schedule its value now."""
        return self._learning_rate if self.is_settable else self._learning_rate(self.iterations)

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if not self.is_settable:
            raise UserError(
                "the optimizer's learning rate is a schedule, and cannot be set; give the "
                "optimizer a number"
            )
        if isinstance(value, keras.optimizers.schedules.LearningRateSchedule) or callable(value):
            raise UserError(f"model.optimizer.learning_rate is set to {value!r}; set a number")
        self._learning_rate.assign(value)

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(f"model.optimizer.{name}")


class CallbackModel:
    """What stands for the model, whose parameters no single process holds.

    Attributes:
        stop_training: Whether a callback asks for the end of the training.
        history: What `keras.callbacks.History` leaves here, None before.
    """

    optimizer: CallbackOptimizer
    stop_training: bool
    history: Any

    def __init__(self, optimizer: CallbackOptimizer):
        vars(self).update(optimizer=optimizer, stop_training=False, history=None)

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(f"model.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTABLE:
            _refuse(f"model.{name}")
        vars(self)[name] = value


def _refuse(what: str) -> NoReturn:
    raise MissingAttributeError(f"{what}: callbacks run in the chief, which has only {_GIVEN}")
