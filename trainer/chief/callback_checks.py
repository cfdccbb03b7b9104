"""Which callbacks a chief cannot call, and what there is instead."""

from collections.abc import Sequence
from typing import Any

import keras

from tfps.errors import UserError, reason_of
from tfps.evaluation.history import known_direction
from tfps.experiment.experiment import Experiment

_PER_BATCH = tuple(
    f"on_{kind}batch_{end}"
    for kind in ("", "train_", "test_", "predict_")
    for end in ("begin", "end")
)
_OF_PREDICTION = ("on_predict_begin", "on_predict_end")
_EVALUATES = "the best evaluation's checkpoint is kept (train.best_metric)"
_INSTEAD = {
    "ModelCheckpoint": "checkpoints are saved by themselves (train.checkpoint_seconds, "
    f"train.keep_checkpoints), {_EVALUATES}, and trainer.export makes a model of any",
    "OrbaxCheckpoint": "checkpoints are saved by themselves (train.checkpoint_seconds, "
    f"train.keep_checkpoints), and {_EVALUATES}",
    "BackupAndRestore": "the same command goes on from the last checkpoint by itself",
    "TensorBoard": "JOB_DIR/tensorboard has its curves without it, under the same names",
    "SwapEMAWeights": "no average of the weights is kept",
    "ProgbarLogger": "progress is shown by itself (--progress)",
}


def make_callbacks(
    experiment: Experiment, metrics: Sequence[str], has_schedule: bool
) -> list[keras.callbacks.Callback]:
    """Fresh callbacks of an experiment that the chief can call, each with its metric's mode."""
    if experiment.callbacks is None:
        return []
    try:
        callbacks = experiment.callbacks(experiment.task)
    except Exception as error:  # whatever the user's code raises
        raise UserError(f"callbacks of {experiment.name!r}: {reason_of(error)}") from error
    if not isinstance(callbacks, (list, tuple)):
        raise UserError(f"callbacks of {experiment.name!r}: not a list, but {callbacks!r}")
    for number, callback in enumerate(callbacks):
        _refuse(callback, has_schedule)
        if isinstance(callback, _monitors()):
            _set_mode(callback, metrics, _are_all_logs_known(callbacks[:number]))
    return list(callbacks)


def describe(callback: Any) -> str:
    """A callback in a message."""
    return f"callback {type(callback).__name__}"


def _refuse(callback: Any, has_schedule: bool) -> None:
    """Refuses what is no callback, needs the model's variables, or is called for each batch."""
    if not isinstance(callback, keras.callbacks.Callback):
        raise UserError(f"callbacks: {callback!r} is no keras.callbacks.Callback")
    name = describe(callback)
    for kind, instead in _INSTEAD.items():
        if isinstance(callback, getattr(keras.callbacks, kind, ())):
            raise UserError(f"{name} cannot be used: {instead}; leave it out")
    if getattr(callback, "restore_best_weights", False):
        raise UserError(
            f"{name}: restore_best_weights=True needs the model's weights, which lie on the ps; "
            f"leave it out: {_EVALUATES}, and trainer.export --checkpoint makes a model of it"
        )
    if isinstance(callback, keras.callbacks.CSVLogger) and callback.append:
        raise UserError(
            f"{name}: a run that goes on tells its callbacks of the epochs before once more, which "
            "append=True would write twice; leave it out, and the file is written as a whole"
        )
    rates = keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau
    if has_schedule and isinstance(callback, rates):
        raise UserError(
            f"{name} sets the learning rate, but the optimizer's is a schedule; give the optimizer "
            "a number, or leave the callback out"
        )
    # Keras's own looks at each batch's loss, which a run does without it.
    if type(callback) is not keras.callbacks.TerminateOnNaN:
        _refuse_hooks(callback)


def _refuse_hooks(callback: keras.callbacks.Callback) -> None:
    for hook in (*_PER_BATCH, *_OF_PREDICTION):
        own = getattr(getattr(callback, hook), "__func__", None)
        if own is getattr(keras.callbacks.Callback, hook):
            continue
        why = "no single process sees each batch: workers train them, and the chief sees epochs"
        if hook in _OF_PREDICTION:
            why = "a run predicts nothing"
        raise UserError(
            f"{describe(callback)} has {hook}(), but {why}; use on_epoch_begin(), on_epoch_end(), "
            "on_test_end() and the like"
        )


def _monitors() -> tuple[type, ...]:
    return keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau


def _are_all_logs_known(before: Sequence[keras.callbacks.Callback]) -> bool:
    """Whether none of the callbacks before another one is the user's, which may add to logs."""
    known = (*_monitors(), keras.callbacks.CSVLogger, keras.callbacks.TerminateOnNaN)
    return all(type(callback) in known for callback in before)


def _set_mode(callback: Any, metrics: Sequence[str], is_complete: bool) -> None:
    """Sets whether higher is better for a monitor; `is_complete` if tfps knows all logs."""
    monitored, logs = callback.monitor, ["loss", *(f"val_{name}" for name in metrics)]
    where = f"{describe(callback)}(monitor={monitored!r})"
    if monitored not in logs and is_complete:
        more = "" if metrics else "; name evaluation shards with --data.eval"
        raise UserError(f"{where}: the logs of an epoch have {', '.join(logs)}{more}")
    if callback.mode != "auto" or monitored in ("loss", "val_loss"):
        return
    direction = known_direction(monitored.removeprefix("val_").lower())
    if not direction:
        raise UserError(f"{where} does not say what is better: add mode='max' or mode='min'")
    callback.mode = direction
