"""The trained model, or a part of it, as a file in Keras's own format."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.errors import UserError, reason_of
from tfps.experiment.task import Task
from tfps.export.parameters import WholeParameters, assign_values, values_by_path
from tfps.export.saved_model import Predict, Sample
from tfps.model import keras_patches
from tfps.model.builder import build_model, load_saved
from tfps.model.inputs import model_inputs, predict_by_name
from tfps.model.stateless_model import StatelessModel
from tfps.storage import failures

MODEL, WEIGHTS = ".keras", ".weights.h5"  # what Keras wants files' names to end in


def trained_model(task: Task, model: StatelessModel, parameters: WholeParameters) -> keras.Model:
    """The task's own model with its parameters, all in this process's memory."""
    trained = build_model(task, model.seed)
    assign_values(trained, values_by_path(model, parameters))
    return trained


def export_keras(
    task: Task,
    model: StatelessModel,
    parameters: WholeParameters,
    path: str,
    sample: Sample,
    part: str = "",
) -> None:
    """Writes a file for `keras.saving.load_model` or `keras.Model.load_weights`, without tfps.

    It is read again before it counts: the model must predict the same, a part must hold the same.
    `path` ends in `MODEL` for the whole model, in `WEIGHTS` for its weights.
    """
    if keyed := [table.name for table in model.tables if table.keys]:
        raise UserError(
            f"{', '.join(keyed)}: Keras's files hold matrices, and a table without a vocabulary is "
            "none; export a SavedModel, without --format"
        )
    trained = trained_model(task, model, parameters)
    written = _part(trained, part) if part else trained
    with tempfile.TemporaryDirectory(prefix="tfps-export-") as directory:
        local = os.path.join(directory, f"model{WEIGHTS if path.endswith(WEIGHTS) else MODEL}")
        again = _written_and_read(task, model.seed, written, local, part)
        if part:
            _refuse_other_values(written, again, part)
        else:
            sample.refuse_different(_predictor(task, again))
        try:
            tf.io.gfile.copy(local, path, overwrite=True)
        except tf.errors.OpError as error:
            raise failures.explain(error, "written", path) from None


def _written_and_read(
    task: Task, seed: int, model: keras.Model, path: str, part: str
) -> keras.Model:
    """Writes a model or its weights, and loads a model from the file."""
    try:
        if not path.endswith(WEIGHTS):
            model.save(path)
            return load_saved(path, model)
        model.save_weights(path)
        fresh = build_model(task, seed)
        again = _part(fresh, part) if part else fresh
        again.load_weights(path)
        return again
    except UserError:
        raise
    except Exception as error:  # whatever Keras says of whatever a model may be made of
        raise UserError(
            f"model {model.name!r} cannot be saved and loaded by Keras "
            f"({reason_of(error)}); give its own classes get_config(), or export its "
            "weights"
        ) from error


def _predictor(task: Task, model: keras.Model) -> Predict:
    def predict(features: Mapping[str, Any]) -> dict[str, np.ndarray]:
        outputs = model(model_inputs(model, task.features(), features), training=False)
        return {name: value.numpy() for name, value in predict_by_name(task, outputs).items()}

    return predict


def _part(model: keras.Model, name: str) -> keras.Model:
    parts = keras_patches.layers_of(model)
    models = {part.name: part for part in parts if isinstance(part, keras.Model)}
    if name not in models:
        found = ", ".join(sorted(models.keys() - {model.name})) or "none"
        raise UserError(f"the model has no model {name!r} within it; it has {found}")
    return models[name]


def _refuse_other_values(written: keras.Model, read: keras.Model, part: str) -> None:
    pairs = zip(written.variables, read.variables, strict=True)
    if not all(np.array_equal(a.numpy(), b.numpy(), equal_nan=True) for a, b in pairs):
        raise UserError(
            f"model {part!r}: Keras reads other values from the file than it has written; export "
            "its weights"
        )
