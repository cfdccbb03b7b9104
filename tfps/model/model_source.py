"""Makes a compiled model again and again: by the user's function, or as copies of one."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import keras

from tfps.errors import UserError, reason_of
from tfps.model import keras_patches
from tfps.model.user_code import account

_FILE = "model.keras"


class ModelSource:
    """Where the model of a task comes from that is made of a compiled one.

    A model that is there is copied the way in which Keras saves and loads it, weights and adapted
    preprocessing layers included. It stays as it is itself.

    Attributes:
        inputs: The inputs of a functional model that is there, empty for any other.
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
        """What the model is compiled with, by argument of `compile`."""
        return self._compiled or self._note(self.make())

    @property
    def output_names(self) -> list[str]:
        """Names of a functional model's outputs, as Keras has them; empty where it has none."""
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
        """A new optimizer like the one of `compile`."""
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
    """Loads what this process has saved of a model of the user's own; it is not compiled.

    Args:
        path: What `model.save` has written, Python functions included.
        model: The model, of whose layers' classes some may not be registered with Keras.
    """
    classes = {type(layer).__name__: type(layer) for layer in keras_patches.layers_of(model)}
    return keras.saving.load_model(path, classes, compile=False, safe_mode=False)
