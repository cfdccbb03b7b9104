"""The metrics of a task that names none: those that fit its labels."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import keras

from tfps.data.feature import Feature
from tfps.experiment import metrics

_YES_OR_NO = {"auc": metrics.auc, "accuracy": metrics.accuracy}
_NUMBER = {"mse": metrics.mean_squared_error, "mae": metrics.mean_absolute_error}
_CLASS = {"accuracy": metrics.class_accuracy}

_BY_LOSS: dict[type[keras.losses.Loss], Mapping[str, Any]] = {
    keras.losses.BinaryCrossentropy: _YES_OR_NO,
    keras.losses.BinaryFocalCrossentropy: _YES_OR_NO,
    keras.losses.SparseCategoricalCrossentropy: _CLASS,
    keras.losses.CategoricalCrossentropy: _CLASS,
    keras.losses.CategoricalFocalCrossentropy: _CLASS,
    keras.losses.MeanSquaredError: _NUMBER,
    keras.losses.MeanAbsoluteError: _NUMBER,
    keras.losses.MeanAbsolutePercentageError: _NUMBER,
    keras.losses.MeanSquaredLogarithmicError: _NUMBER,
    keras.losses.Huber: _NUMBER,
    keras.losses.LogCosh: _NUMBER,
    keras.losses.Poisson: _NUMBER,
}

_AMBIGUOUS = ("crossentropy", "ce")  # which of the three it is the outputs' shape tells

# Keras has a function for each of these classes: of `MeanSquaredError` it is `mean_squared_error`.
_BY_FUNCTION = {
    getattr(keras.losses, re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).lower()): measured
    for kind, measured in _BY_LOSS.items()
}


def default_metrics(label: Feature, loss: Any) -> dict[str, Any]:
    """Metrics by name, callables of all values of a label and all its predictions.

    What the loss is for tells which; where that is not known, ids below 2 are answers of yes or no,
    and float32 is a number. Of anything else nothing but the loss is measured.

    Args:
        loss: Its loss, a `keras.losses.Loss`, one of Keras's functions or its name, or None where
            the task computes it otherwise.
    """
    if isinstance(loss, str) and loss.lower() not in _AMBIGUOUS:
        loss = keras.losses.get(loss)
    function = getattr(loss, "fn", loss)
    by_function = _BY_FUNCTION.get(function) if inspect.isfunction(function) else None
    by_loss = _BY_LOSS.get(type(loss)) or by_function
    if by_loss is not None:
        return dict(by_loss)
    if label.vocabulary_size == 2:
        return dict(_YES_OR_NO)
    return dict(_NUMBER) if label.dtype == "float32" else {}
