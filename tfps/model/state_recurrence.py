"""What a training step keeps of a model's state, read from the step's graph."""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# By variable, the factor with which a tensor follows it; None where it follows in another way.
_Factors = dict[int, float | None]

_SAME = {"Cast", "Identity", "StopGradient", "PreventGradient", "EnsureShape", "CheckNumerics"}
_SUMS = {"Add", "AddN", "AddV2"}


def kept_by_step(
    before: Sequence[tf.Tensor], after: Sequence[tf.Tensor]
) -> tuple[float | None, ...]:
    """What a step keeps of each state variable before it adds something of its own.

    Moving averages (BatchNorm's: what it keeps is the momentum) and counters (1) become
    `kept * old + something`, element by element, whatever the batch. The operations between the old
    value and the new one say so: sums, differences, and products with constants.

    Returns:
        One per variable; None where a step is something else, as for the vector of
        `keras.layers.SpectralNormalization`.
    """
    if not before:
        return ()
    factors: dict[str, _Factors] = {old.name: {k: 1.0} for k, old in enumerate(before)}
    # Operations stand in the order in which they were made: inputs before what is made of them.
    for operation in before[0].graph.get_operations():
        inputs = [factors.get(value.name, {}) for value in operation.inputs]
        for variable in {variable for each in inputs for variable in each}:
            follows = [variable in each for each in inputs]
            factor = _factor(operation, follows, [each.get(variable, 0.0) for each in inputs])
            for output in operation.outputs:
                is_alike = output.shape == before[variable].shape and output.dtype.is_floating
                factors.setdefault(output.name, {})[variable] = factor if is_alike else None
    return tuple(factors.get(new.name, {}).get(k, 0.0) for k, new in enumerate(after))


def _factor(
    operation: tf.Operation, follows: list[bool], factors: list[float | None]
) -> float | None:
    """With which factor an operation's output follows a variable, None for in another way.

    Args:
        follows: For every input, whether it depends on the variable.
        factors: Those of its inputs, 0 for one that does not depend on it.
    """
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return None
    if operation.type in _SAME:
        return known[0]
    if operation.type in _SUMS:
        return math.fsum(known)
    if operation.type == "Sub":
        return known[0] - known[1]
    if operation.type == "Neg":
        return -known[0]
    if operation.type == "Mul" and not all(follows):
        constant = _constant(operation.inputs[follows.index(False)])
        return None if constant is None else known[follows.index(True)] * constant
    if operation.type == "RealDiv" and not follows[1]:
        divisor = _constant(operation.inputs[1])
        return known[0] / divisor if divisor else None
    return None


def _constant(tensor: tf.Tensor) -> float | None:
    """The one number that all elements of a constant tensor are, None if there is none."""
    value = tf.get_static_value(tensor)
    if value is None or np.size(value) == 0 or np.any(value != np.ravel(value)[0]):
        return None
    number = float(np.ravel(value)[0])
    return number if math.isfinite(number) else None
