"""The Keras callbacks of a run, and when the chief calls them."""

import logging
import math
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import keras

from tfps.checkpoint.checkpoint import TrainedEpoch
from tfps.cluster.ps_calls import PsCalls
from tfps.errors import UserError, reason_of
from tfps.store.parameter_store import ParameterStore
from trainer.chief.callback_choice import describe

_SETTABLE = ("stop_training", "history")
_GIVEN = (
    "model.optimizer.learning_rate, model.optimizer.iterations and model.stop_training; the "
    "parameters lie on the ps, and their checkpoints in JOB_DIR"
)
_log = logging.getLogger(__name__)


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
    """Stands in for the model, whose parameters no single process holds."""

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


class Callbacks:
    """Calls callbacks as `fit` does, for each epoch of the job.

    A callback's state follows from its calls. So a run that resumes from a checkpoint makes new
    ones and replays the epochs before it.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        params: Mapping[str, int | None],
    ):
        self.reason_to_stop: str | None = None
        self._callbacks = callbacks
        self._epoch = -1  # the last that they were called for
        self._logs: dict[str, float] = {}  # of that one's end
        self._model = CallbackModel(CallbackOptimizer(learning_rate))
        self._call("set_params", dict(params))
        self._call("set_model", self._model)

    @property
    def learning_rate(self) -> float | None:
        """The learning rate as they want it now; None for that of the optimizer's schedule."""
        optimizer = self._model.optimizer
        if not optimizer.is_settable:
            return None
        return float(keras.ops.convert_to_numpy(optimizer.learning_rate))

    def push_learning_rate(self, store: ParameterStore, ps_calls: PsCalls) -> None:
        """Gives the ps the learning rate, while no worker is changing the parameters."""
        if (rates := store.learning_rates) is None:
            return
        rate = self.learning_rate
        if rate is not None and rate != rates.now:
            _log.info("the learning rate is %g from now on", rate)
            ps_calls("setting the learning rate", lambda: rates.set(rate, store.steps()))

    def begin(self, trained: Sequence[tuple[TrainedEpoch, Mapping[str, float] | None]]) -> None:
        """Starts and replays trained epochs, each with its evaluation's metrics or None."""
        if self._callbacks and trained:
            _log.info("callbacks hear of %d epochs that are trained already", len(trained))
        self._call("on_train_begin", {})
        for epoch, metrics in trained:
            self.begin_epoch(epoch.number)
            if metrics is not None:
                self.begin_evaluation()
            self.end_epoch(epoch, metrics)

    def begin_epoch(self, number: int) -> None:
        """Starts epoch `number`, from 0, unless it was started."""
        if number > self._epoch:
            self._epoch = number
            self._call("on_epoch_begin", number, {})

    def begin_evaluation(self) -> None:
        self._call("on_test_begin", {})

    def end_epoch(self, epoch: TrainedEpoch, metrics: Mapping[str, float] | None) -> None:
        """Tells them that an evaluation has ended, if there was one, and the epoch with it."""
        self._model.optimizer.iterations = epoch.steps
        self._logs = {"loss": epoch.loss}
        if metrics is not None:
            self._call("on_test_end", dict(metrics))
            self._logs |= {f"val_{name}": value for name, value in metrics.items()}
        self._call("on_epoch_end", epoch.number, self._logs)

    def end(self) -> None:
        self._call("on_train_end", self._logs)

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, hook)(*arguments)
            except Exception as error:  # whatever the user's code raises
                raise UserError(
                    f"{describe(callback)}: {hook}(){_place(error)} fails: {reason_of(error)}"
                ) from error
            self._look(callback, hook)

    def _look(self, callback: keras.callbacks.Callback, hook: str) -> None:
        """Looks what a callback has made of the model."""
        if self._model.stop_training and not self.reason_to_stop:
            when = f" of epoch {self._epoch + 1}" if self._epoch >= 0 else ""
            self.reason_to_stop = f"{describe(callback)} has set stop_training in {hook}(){when}"
        rate = self.learning_rate
        if rate is not None and not math.isfinite(rate):
            raise UserError(f"{describe(callback)}: {hook}() has set the learning rate to {rate}")


def _place(error: Exception) -> str:
    """Where in a hook it has failed: the line below `Callbacks._call`."""
    frames = traceback.extract_tb(error.__traceback__)[1:2]
    return "".join(f" ({os.path.basename(at.filename)}:{at.lineno})" for at in frames)
