"""Which Keras callbacks of an experiment the chief calls, and what is done without them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from tfps.errors import UserError, reason_of
from tfps.evaluation.history import known_direction
from tfps.experiment.experiment import BEST, LAST, Experiment, Train

_PER_BATCH = tuple(
    f"on_{kind}batch_{end}"
    for kind in ("", "train_", "test_", "predict_")
    for end in ("begin", "end")
)
_OF_PREDICTION = ("on_predict_begin", "on_predict_end")
_SAVED = (
    "checkpoints are saved by themselves, the best evaluation's is kept, and trainer.export "
    "--format=keras makes a file of any"
)
# Callbacks whose work is done without them.
_INSTEAD = {
    "ModelCheckpoint": _SAVED,
    "OrbaxCheckpoint": _SAVED,
    "BackupAndRestore": "the same command resumes from the last checkpoint by itself",
    "TensorBoard": "JOB_DIR/tensorboard has its curves, under the same names",
    "ProgbarLogger": "progress is shown by itself (--progress)",
}
_MONITORS = keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau
_RATES = keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau


class Choice(NamedTuple):
    """Callbacks to call, and what is done in place of the others.

    `best_metric` is what they want the best evaluation chosen by, and `exports_best` whether they
    want its weights at the end.
    """

    callbacks: Sequence[keras.callbacks.Callback] = ()
    notes: Sequence[str] = ()
    best_metric: str | None = None
    exports_best: bool = False

    @classmethod
    def of(cls, experiment: Experiment) -> "Choice":
        """Makes the experiment's callbacks, and chooses among them."""
        if experiment.callbacks is None:
            return cls()
        try:
            made = experiment.callbacks(experiment.task)
        except Exception as error:  # whatever the user's code raises
            raise UserError(f"callbacks of {experiment.name!r}: {reason_of(error)}") from error
        if not isinstance(made, (list, tuple)):
            raise UserError(f"callbacks of {experiment.name!r}: not a list, but {made!r}")
        called, notes, wanted, exports_best = [], [], [], False
        for callback in made:
            if instead := _instead_of(callback):
                notes.append(f"{describe(callback)} is not called: {instead}")
                if getattr(callback, "save_best_only", False):
                    wanted.append(callback)
                continue
            called.append(callback)
            if getattr(callback, "restore_best_weights", False):
                callback.restore_best_weights = False
                exports_best = True
                wanted.append(callback)
                notes.append(f"{describe(callback)}: the best evaluation's model is exported")
        metrics = {_metric_of(callback) for callback in wanted}
        if len(metrics) > 1:
            raise UserError(
                "callbacks: the best is to be chosen by "
                f"{' and by '.join(sorted(metrics))}; name one monitor"
            )
        return cls(called, notes, next(iter(metrics), None), exports_best)

    def applied(self, experiment: Experiment) -> Experiment:
        """The experiment with what the callbacks want of the best evaluation."""
        train, default = experiment.train, Train()
        changes: dict[str, Any] = {}
        if self.best_metric and self.best_metric != train.best_metric:
            if train.best_metric != default.best_metric:
                raise UserError(
                    f"train.best_metric={train.best_metric}, but a callback wants the best by "
                    f"val_{self.best_metric}; name one"
                )
            changes["best_metric"] = self.best_metric
        if self.exports_best and train.export == LAST:
            changes["export"] = BEST
        if not changes:
            return experiment
        return dataclasses.replace(experiment, train=dataclasses.replace(train, **changes))


def make_callbacks(
    experiment: Experiment, metrics: Sequence[str], has_schedule: bool
) -> list[keras.callbacks.Callback]:
    """Fresh callbacks of an experiment that the chief can call, each with its metric's mode."""
    called = list(Choice.of(experiment).callbacks)
    check_callbacks(called, metrics, has_schedule)
    return called


def check_callbacks(
    called: Sequence[keras.callbacks.Callback], metrics: Sequence[str], has_schedule: bool
) -> None:
    """Refuses callbacks that the chief cannot call, all in one error; sets their metrics' modes."""
    problems: list[str] = []
    for number, callback in enumerate(called):
        problems += _problems(callback, has_schedule)
        if isinstance(callback, _MONITORS):
            problems += _set_mode(callback, metrics, _are_all_logs_known(called[:number]))
    if problems:
        raise UserError("; ".join(problems))


def describe(callback: Any) -> str:
    """A callback in a message."""
    return f"callback {type(callback).__name__}"


def _instead_of(callback: Any) -> str:
    """What does a callback's work without it; empty if nothing does."""
    for kind, instead in _INSTEAD.items():
        if isinstance(callback, getattr(keras.callbacks, kind, ())):
            return instead
    return ""


def _metric_of(callback: Any) -> str:
    """The metric of evaluations that a callback chooses the best by."""
    monitored = str(callback.monitor)
    if not monitored.startswith("val_"):
        raise UserError(
            f"{describe(callback)}(monitor={monitored!r}): the best is chosen by evaluations; "
            "monitor val_loss or another metric that begins with val_"
        )
    return monitored.removeprefix("val_")


def _problems(callback: Any, has_schedule: bool) -> list[str]:
    """What is wrong with what is no callback, needs the model, or is called for each batch."""
    if not isinstance(callback, keras.callbacks.Callback):
        return [f"callbacks: {callback!r} is no keras.callbacks.Callback"]
    name, found = describe(callback), []
    if isinstance(callback, keras.callbacks.SwapEMAWeights):
        found.append(f"{name} cannot be used: no average of the weights is kept; leave it out")
        return found
    if isinstance(callback, keras.callbacks.CSVLogger) and callback.append:
        found.append(
            f"{name}: a run that resumes gives its callbacks the epochs before once more, which "
            "append=True would write twice; leave it out, and the file is written as a whole"
        )
    if has_schedule and isinstance(callback, _RATES):
        found.append(
            f"{name} sets the learning rate, but the optimizer's is a schedule; give the optimizer "
            "a number, or leave the callback out"
        )
    # Keras's own looks at each batch's loss, which a run does without it.
    is_known = type(callback) is keras.callbacks.TerminateOnNaN
    return found if is_known else [*found, *_wrong_hooks(callback)]


def _wrong_hooks(callback: keras.callbacks.Callback) -> list[str]:
    found = []
    for hook in (*_PER_BATCH, *_OF_PREDICTION):
        own = getattr(getattr(callback, hook), "__func__", None)
        if own is getattr(keras.callbacks.Callback, hook):
            continue
        why = "no single process sees each batch: workers train them, and the chief sees epochs"
        if hook in _OF_PREDICTION:
            why = "a run predicts nothing"
        found.append(
            f"{describe(callback)} has {hook}(), but {why}; use on_epoch_begin(), on_epoch_end(), "
            "on_test_end() and the like"
        )
    return found


def _are_all_logs_known(before: Sequence[keras.callbacks.Callback]) -> bool:
    """Whether none of the callbacks before another one is the user's, which may add to logs."""
    known = (*_MONITORS, keras.callbacks.CSVLogger, keras.callbacks.TerminateOnNaN)
    return all(type(callback) in known for callback in before)


def _set_mode(callback: Any, metrics: Sequence[str], is_complete: bool) -> list[str]:
    """Sets whether higher is better for a monitor; `is_complete` if tfps knows all logs.

    Returns what is wrong with it.
    """
    monitored, logs = callback.monitor, ["loss", *(f"val_{name}" for name in metrics)]
    where = f"{describe(callback)}(monitor={monitored!r})"
    if monitored not in logs and is_complete:
        more = "" if metrics else "; name evaluation shards with --data.eval"
        return [f"{where}: the logs of an epoch have {', '.join(logs)}{more}"]
    if callback.mode != "auto" or monitored in ("loss", "val_loss"):
        return []
    direction = known_direction(monitored.removeprefix("val_").lower())
    if not direction:
        return [f"{where} does not say what is better: add mode='max' or mode='min'"]
    callback.mode = direction
    return []
