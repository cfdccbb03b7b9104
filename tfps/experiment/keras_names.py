"""Losses and optimizers as Keras's `compile` takes them: names, functions and objects."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from tfps import arguments
from tfps.errors import UserError, reason_of

# What `compile` makes of a function: the mean over a batch, once labels and outputs have one rank.
# The class has no public name; it is the base of those losses of Keras's that are functions.
[_OfFunction] = keras.losses.MeanSquaredError.__bases__


def loss(given: Any, where: str, labels: Sequence[str]) -> Any:
    """A loss from Keras's loss, function or name, or a dict by `labels`; none if single."""
    if isinstance(given, (list, tuple)) and len(given) == len(labels):
        given = dict(zip(labels, given, strict=True))
    is_for_each = len(labels) == 1 and not isinstance(given, Mapping)
    if is_for_each or (labels and isinstance(given, str)):  # as in Keras
        given = dict.fromkeys(labels, given)
    if isinstance(given, Mapping):
        return {name: loss(each, where, ()) for name, each in given.items()}
    if isinstance(given, keras.losses.Loss):
        return given
    try:
        found = keras.losses.get(given) if isinstance(given, str) else given
    except ValueError as error:
        raise UserError(f"{where}{arguments.shown(given)}: {reason_of(error)}") from None
    if isinstance(found, keras.losses.Loss):
        return found
    if isinstance(found, type) or not callable(found):
        raise UserError(
            f"{where}{arguments.shown(given)} must be a keras.losses.Loss, the name of one or a "
            "function of labels and outputs, or a dict of them by the labels' names"
        )
    return found if _takes_weights(found) else _OfFunction(found)


def optimizer(given: Any, where: str) -> keras.optimizers.Optimizer:
    """An optimizer."""
    try:
        return keras.optimizers.get(given)
    except Exception as error:  # Keras has several for what it does not know
        why = f": {reason_of(error)}" if isinstance(given, Mapping) else ""
        raise UserError(
            f"{where}{arguments.shown(given)} must be a keras.optimizers.Optimizer, or the name of "
            f"one, such as 'adam'{why}"
        ) from None


def _takes_weights(function: Callable[..., Any]) -> bool:
    """Whether a loss has a third argument of its own, for weights."""
    try:
        return "sample_weight" in inspect.signature(function).parameters
    except ValueError:  # one of C
        return False
