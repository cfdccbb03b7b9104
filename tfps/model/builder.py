"""Builds a task's model, the same one every time."""

import linecache
import os
import shutil
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import keras

from tfps.data.feature import Feature
from tfps.errors import RunError, UserError, reason_of
from tfps.experiment.task import Task
from tfps.model import inputs, keras_patches
from tfps.model.inputs import call_with_symbols
from tfps.model.keras_patches import initializers_seeded

# Packages whose frames say nothing of what the user wrote.
_LIBRARIES = {"keras", "tensorflow", "tfps", "trainer", "numpy", "optree", "absl", "google"}
_STEPS = ("train_step", "test_step", "predict_step")
_FILE = "model.keras"


def account(error: BaseException, model: keras.Model | None = None) -> str:
    """The reason of an error, after the model's innermost failing layer and the user's line."""
    return f"{place_of(error, model)}{reason_of(error)}"


def place_of(error: BaseException, model: keras.Model | None = None) -> str:
    """The layer and the user's line of `account`; empty if neither is known."""
    layer = _failing_layer(model, error) if model else None
    where = f"in layer {layer.path!r}: " if layer else ""
    return where + _line_of(error)


def _line_of(error: BaseException) -> str:
    """The innermost line of the user's, as `FILE:LINE, CODE: `; empty if there is none."""
    own = [(frame, line) for frame, line in _frames(error) if not _is_library(frame)]
    if not own:
        return ""
    frame, line = own[-1]
    path = frame.f_code.co_filename
    code = linecache.getline(path, line).strip()
    return f"{os.path.basename(path)}:{line}, `{code}`: " if code else ""


def _is_library(frame: FrameType) -> bool:
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return top in _LIBRARIES or top in sys.stdlib_module_names


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    return traceback.walk_tb(error.__traceback__)


def _failing_layer(model: keras.Model, error: BaseException) -> keras.layers.Layer | None:
    """The innermost layer of a model in whose code an error was raised."""
    layers = {id(layer) for layer in keras_patches.layers_of(model)} - {id(model)}
    owners = [frame.f_locals.get("self") for frame, _ in _frames(error)]
    found = [each for each in owners if id(each) in layers]
    return found[-1] if found else None


def build_model(task: Task, seed: int) -> keras.Model:
    """Builds a task's model with all its variables, under the same names every time.

    A dtype policy that `build_model()` sets is for this model only.
    """
    # Equal names, whatever was built before in this process; to look through all objects for
    # garbage as well takes a quarter of a second.
    keras.utils.clear_session(free_memory=False)
    # Keras would wrap a UserError in a description of the failing layer's arguments.
    keras.config.disable_traceback_filtering()
    keras.utils.set_random_seed(seed)
    policy = keras.config.dtype_policy()
    try:
        with initializers_seeded(seed):
            model = _built(task)
            _refuse_own_steps(model)
            _call(model, task.features())
            _refuse_stateful(model)
    finally:
        keras.config.set_dtype_policy(policy)
    return model


def _built(task: Task) -> keras.Model:
    try:
        return task.build_model()
    except (UserError, RunError):
        raise
    except Exception as error:  # whatever the user's code raises
        raise UserError(
            f"build_model() of {type(task).__name__} fails: {account(error)}"
        ) from error


def _refuse_own_steps(model: keras.Model) -> None:
    for name in _STEPS:
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise UserError(
                f"build_model(): {type(model).__name__} overrides {name}(), which works on "
                "variables of its own; on parameter servers pull, compute and push are tfps's. Say "
                "what differs in the model's call() or compute_loss(), or in the task's "
                "compute_loss() and predictions()"
            )


def _refuse_stateful(model: keras.Model) -> None:
    for layer in keras_patches.layers_of(model):
        if isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise UserError(
                f"build_model(): layer {layer.path!r} has stateful=True: it begins a batch where "
                "the one before has ended, but records are shuffled and several workers train at "
                "the same time; leave it out, and put a whole sequence into each record"
            )


def _call(model: keras.Model, features: Sequence[Feature]) -> None:
    """Calls a model with symbolic inputs, so that every layer is built and misfits show."""
    inputs.signature_specs(features)  # or an export would fail on their names
    try:
        call_with_symbols(model, features)
    except UserError:
        raise
    except Exception as error:  # whatever the user's code raises
        names = ", ".join(f"{f.name} {f.dtype} {list(f.shape)}" for f in features)
        raise UserError(
            f"build_model(): the model cannot be called with the task's features ({names}): "
            f"{account(error, model)}"
        ) from error


class ModelSource:
    """The source of a model whose task is made of a compiled one.

    A given model is copied as Keras saves and loads it, with weights and adapted preprocessing
    layers, and stays unchanged itself. `inputs` are those of a given functional model.
    """

    def __init__(self, model: keras.Model | Callable[[], keras.Model]):
        self._is_there = isinstance(model, keras.Model)
        self._model = model
        self._compiled: dict[str, Any] = {}
        self._output_names: list[str] = []
        self._optimizer: tuple[type[keras.optimizers.Optimizer], dict[str, Any], Any] | None = None
        self._saved = ""
        if self._is_there:
            self._note(model)
        self.inputs = list(getattr(model, "inputs", None) or []) if self._is_there else []

    @property
    def compiled(self) -> dict[str, Any]:
        """Arguments of the model's `compile`."""
        return self._compiled or self._note(self.make())

    @property
    def output_names(self) -> list[str]:
        """Keras's names of a functional model's outputs; empty for others."""
        _ = self.compiled  # which notes them
        return self._output_names

    def make(self) -> keras.Model:
        """A new model, compiled as the user compiled it."""
        if not self._is_there:
            try:
                model = self._model()
            except UserError:
                raise
            except Exception as error:  # whatever the user's code raises
                raise UserError(
                    f"task_of(): the function that makes the model fails: {account(error)}"
                ) from error
            self._note(model)
            return model
        copy, given = self._copy(), self._compiled
        copy.compile(self.optimizer(), given["loss"], given["loss_weights"])
        return copy

    def optimizer(self) -> keras.optimizers.Optimizer:
        _ = self.compiled  # which notes its config
        assert self._optimizer is not None
        kind, config, classes = self._optimizer
        return kind.from_config(dict(config), classes)

    def _note(self, model: keras.Model) -> dict[str, Any]:
        name = getattr(model, "name", type(model).__name__)
        if not isinstance(model, keras.Model) or not model.compiled:
            raise UserError(
                f"task_of(): {name!r} is not a compiled model; compile it, for example with "
                "model.compile(optimizer='adam', loss='binary_crossentropy')"
            )
        self._compiled = keras_patches.compile_arguments(model)
        # Its config now: a process that becomes a chief loses the variables it made before.
        optimizer = keras.optimizers.get(self._compiled["optimizer"])
        self._optimizer = (
            type(optimizer),
            _config(optimizer),
            keras_patches.schedule_class(optimizer),
        )
        self._output_names = list(getattr(model, "output_names", None) or [])
        return self._compiled

    def _copy(self) -> keras.Model:
        model: Any = self._model
        try:
            if not self._saved:
                directory = tempfile.mkdtemp(prefix="tfps-model-")
                weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
                model.save(os.path.join(directory, _FILE), include_optimizer=False)
                self._saved = os.path.join(directory, _FILE)
            return load_saved(self._saved, model)
        except Exception as error:  # whatever Keras says of whatever a model may be made of
            raise UserError(
                f"task_of(): the model {model.name!r} cannot be copied, since Keras cannot save "
                f"and load it ({reason_of(error)}); hand over the function that makes and compiles "
                "it"
            ) from error


def _config(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    try:
        return dict(optimizer.get_config())
    except NotImplementedError as error:  # what Keras's schedules raise that do not override it
        raise UserError(
            f"task_of(): the learning rate of {type(optimizer).__name__} has no get_config(), so "
            "that it cannot be made again: give its class one, which returns the arguments of "
            "__init__ by name"
        ) from error


def load_saved(path: str, model: keras.Model) -> keras.Model:
    """Loads what this process has saved of a user's model, Python functions included.

    It is not compiled. Classes of the model's layers may be unknown to Keras.
    """
    classes = {type(layer).__name__: type(layer) for layer in keras_patches.layers_of(model)}
    return keras.saving.load_model(path, classes, compile=False, safe_mode=False)
