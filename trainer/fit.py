"""`tfps.fit`: a compiled model trained as a job, in the process of a notebook or a script."""

import contextlib
import logging
import os
import posixpath
import random
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import keras
import numpy as np

from tfps import arguments
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.saved_values import named_checkpoint
from tfps.cluster.spec import Cluster
from tfps.data.array_dataset import write_dataset
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.schema import Schema
from tfps.errors import UserError
from tfps.evaluation.history import Evaluation, Evaluations
from tfps.experiment.experiment import BEST, Data, Experiment, Train
from tfps.experiment.mode import Local
from tfps.export.keras_file import trained_model
from tfps.export.parameters import CheckpointParameters
from tfps.job_dir import JobDir
from tfps.model.compiled_task import task_of
from tfps.storage import tf_settings
from trainer.chief import preflight
from trainer.chief.interruption import Interrupted, Interruption
from trainer.chief.monitoring import Monitoring
from trainer.chief.run import run
from trainer.chief.run_inputs import RunInputs, RunSettings
from trainer.chief.wait_limits import WaitLimits
from trainer.console.terminal import ProgressDisplay

_WEIGHT = "sample_weight"
_LINE_SECONDS = 10.0  # between two lines of progress
_GRACE_SECONDS = 25.0  # for a checkpoint after an interrupt
_LOGGERS = ("tfps", "trainer")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


@arguments.checked
def fit(
    model: keras.Model,
    x: Any,
    y: Any = None,
    job_dir: str = "",
    batch_size: int = 32,
    epochs: int = 1,
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: Any = None,
    verbose: bool = True,
) -> keras.callbacks.History:
    """Trains a compiled model as `keras.Model.fit` does, and keeps checkpoints, page and export.

    The whole job is in this process, as with `--mode.name=local`. Where the same call was
    interrupted it resumes from the last checkpoint; where it has finished it trains nothing.

    Args:
        model: A functional or sequential model that is compiled. It has the trained weights
            afterwards: those of the best evaluation if a callback restores them.
        x: As of `fit` and `tfps.write_dataset`: arrays by the inputs' names, or in their order, a
            data frame, a `tf.data.Dataset` of batches. It is written to JOB_DIR/data.
        y: The labels: an array, or several by the outputs' names.
        job_dir: Directory of the job, local or `gs://`.
        batch_size: Records per step.
        epochs: Times that every record is trained.
        callbacks: A list of Keras's callbacks, called at epochs and evaluations.
        validation_split: Share of arrays, the last records, that is evaluated and not trained.
        validation_data: What is evaluated after each epoch: `(x, y)`, or a `tf.data.Dataset`.
        shuffle: Whether records are trained in a drawn order.
        class_weight: By class of the only label, a factor of its records' parts in the loss.
        sample_weight: A number per record, the factor of its part in the loss.
        verbose: Whether lines say how far it is.

    Returns:
        The loss of each epoch, and the metrics of its evaluation with `val_` before their names.

    Raises:
        UserError: If the model or the data cannot be trained; says what to change.
        KeyboardInterrupt: At an interrupt, once a checkpoint is saved.
    """
    _check(model, job_dir, callbacks)
    with _lines(verbose), _session(), _left_as_they_were(callbacks or ()):
        given = x, y, sample_weight
        data, manifest = _written(model, job_dir, given, validation_data, validation_split, shuffle)
        labels = [each for each in Schema.of(manifest).labels if each.name != _WEIGHT]
        task = task_of(
            model,
            labels[0] if len(labels) == 1 else labels,
            sample_weight=Feature(_WEIGHT, "float32") if sample_weight is not None else None,
            class_weight=class_weight,
        )
        train, made = Train(batch_size=batch_size, epochs=epochs), _once(callbacks)
        experiment = Experiment(model.name, task, data, train, Local(), made)
        inputs = RunInputs.check(RunSettings(experiment, Cluster(), JobDir(job_dir)))
        preflight.check_machine(inputs)
        tf_settings.keep_blocks()
        with _interruptible() as interruption:
            display = ProgressDisplay(sys.stderr, is_live=False, line_seconds=_LINE_SECONDS)
            run(inputs, WaitLimits(), interruption, display, Monitoring())
        last, evaluations = named_checkpoint(job_dir), Evaluations(JobDir(job_dir)).all()
        _assign(model, inputs, _exported(inputs, last, evaluations))
    return _history(model, last, evaluations)


def _check(model: keras.Model, job_dir: str, callbacks: Any) -> None:
    if not job_dir:
        raise UserError("fit(): job_dir= is missing: name the directory that keeps the training")
    if not getattr(model, "compiled", False):
        raise UserError("fit(): the model is not compiled; call model.compile(optimizer, loss)")
    if callbacks is not None and not isinstance(callbacks, list | tuple):
        raise UserError(f"fit(): callbacks={arguments.shown(callbacks)}: give a list of callbacks")
    if threading.current_thread() is not threading.main_thread():
        raise UserError(
            "fit() saves at an interrupt, which Python tells the main thread alone; call it there"
        )


def _once(callbacks: Sequence[Any] | None) -> Any:
    """A function that gives the callbacks, as an experiment wants one."""
    return None if callbacks is None else lambda task: list(callbacks)


def _written(
    model: keras.Model,
    job_dir: str,
    given: tuple[Any, Any, Any],
    validation_data: Any,
    validation_split: float,
    shuffle: bool,
) -> tuple[Data, Manifest]:
    """Writes the records below the job's directory."""
    train, evaluated = (posixpath.join(job_dir, "data", name) for name in ("train", "eval"))
    if validation_data is not None and validation_split:
        raise UserError("fit(): validation_data= and validation_split= exclude each other")
    x, y, weight = given
    features = task_of(model, ()).features()
    manifest = write_dataset(
        train,
        _named(x, features),
        y,
        weight,
        features,
        overwrite=True,
        validation_split=validation_split,
        validation_directory=evaluated if validation_split else None,
        shuffle="whole" if shuffle and _is_in_memory(x) else "none",
    )
    if validation_data is not None:
        is_tuple = isinstance(validation_data, tuple | list)
        several = tuple(validation_data) if is_tuple else (validation_data,)
        x, y, weights = (*several, None, None)[:3]
        if weight is not None and weights is None and y is not None:
            weights = np.ones(len(keras.tree.flatten(y)[0]), np.float32)  # evaluations use none
        write_dataset(evaluated, _named(x, features), y, weights, features, overwrite=True)
    has_evaluation = validation_data is not None or bool(validation_split)
    buffer = Data().shuffle_buffer if shuffle else 0
    return Data(train, evaluated if has_evaluation else "", shuffle_buffer=buffer), manifest


def _named(x: Any, features: Sequence[Feature]) -> Any:
    """A list of arrays by the names of the model's inputs."""
    if isinstance(x, list | tuple) and len(x) == len(features) > 1:
        return {feature.name: each for feature, each in zip(features, x, strict=True)}
    return x


def _is_in_memory(x: Any) -> bool:
    """Whether it holds all records at once, and is no stream of batches."""
    return isinstance(x, Mapping | list | tuple) or hasattr(x, "shape")


@contextlib.contextmanager
def _left_as_they_were(callbacks: Sequence[Any]) -> Iterator[None]:
    """Puts back `restore_best_weights`, False in a run: callbacks may be given to another call."""
    stopping = [each for each in callbacks if hasattr(each, "restore_best_weights")]
    wanted = [each.restore_best_weights for each in stopping]
    try:
        yield
    finally:
        for callback, value in zip(stopping, wanted, strict=True):
            callback.restore_best_weights = value


@contextlib.contextmanager
def _lines(verbose: bool) -> Iterator[None]:
    """Shows tfps's lines on stderr alone, and leaves loggers as they were."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if verbose else logging.WARNING)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagates) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagates


@contextlib.contextmanager
def _session() -> Iterator[None]:
    """Puts back what building a model sets for the whole process."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    is_filtering = keras.config.is_traceback_filtering_enabled()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if is_filtering:
            keras.config.enable_traceback_filtering()


@contextlib.contextmanager
def _interruptible() -> Iterator[Interruption]:
    """An interrupt saves and then is one as before; the signals' handlers are put back."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    unraisable_hook = sys.unraisablehook
    interruption = Interruption(_GRACE_SECONDS)
    try:
        interruption.install()
        yield interruption
    except Interrupted as stopped:
        logging.getLogger(__name__).warning("stopped; the same call resumes from the checkpoint")
        signal.signal(signal.SIGTERM, handlers[signal.SIGTERM])
        if stopped.signal == signal.SIGINT:
            raise KeyboardInterrupt from None
        os.kill(os.getpid(), stopped.signal)
        # The handler before may return; the training has not ended all the same.
        raise SystemExit(128 + stopped.signal) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = unraisable_hook


def _exported(inputs: RunInputs, last: Checkpoint, evaluations: Sequence[Evaluation]) -> Checkpoint:
    """The checkpoint whose model the job exports."""
    if inputs.settings.experiment.train.export != BEST:
        return last
    best = inputs.plan.best_metric.best([each.metrics for each in evaluations])
    if best is None:
        return last
    parent = posixpath.dirname(last.path)
    return named_checkpoint(posixpath.join(parent, evaluations[best].checkpoint))


def _assign(model: keras.Model, inputs: RunInputs, checkpoint: Checkpoint) -> None:
    """Gives the model the weights of a checkpoint."""
    plan = inputs.plan
    parameters = CheckpointParameters(checkpoint, plan.model, plan.rules)
    trained = trained_model(inputs.settings.experiment.task, plan.model, parameters)
    model.set_weights(trained.get_weights())


def _history(
    model: keras.Model, last: Checkpoint, evaluations: Sequence[Evaluation]
) -> keras.callbacks.History:
    history = keras.callbacks.History()
    history.set_model(model)
    history.on_train_begin()
    measured = {(each.epoch, each.steps): each.metrics for each in evaluations}
    for epoch in last.losses.epochs:
        of_evaluation = measured.get((epoch.number + 1, epoch.steps), {})
        logs = {"loss": epoch.loss, **{f"val_{k}": v for k, v in of_evaluation.items()}}
        history.on_epoch_end(epoch.number, cast(dict[str, Any], logs))
    return history
