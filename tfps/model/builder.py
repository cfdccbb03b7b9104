"""Builds a task's model, the same one every time."""

from collections.abc import Sequence

import keras

from tfps.data.feature import Feature
from tfps.errors import RunError, UserError
from tfps.experiment.task import Task
from tfps.model import inputs, keras_patches
from tfps.model.inputs import call_with_symbols
from tfps.model.keras_patches import initializers_seeded
from tfps.model.user_code import account

_STEPS = ("train_step", "test_step", "predict_step")


def build_model(task: Task, seed: int) -> keras.Model:
    """Builds a task's model with all its variables, named as whenever it is built.

    A dtype policy that `build_model()` sets holds for this model only.
    """
    keras.utils.clear_session()  # equal names, whatever was built before in this process
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
