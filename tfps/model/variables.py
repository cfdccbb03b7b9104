"""The variables of a model, by their kind."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.errors import UserError
from tfps.layers import id_check

# By variable, the factor with which a tensor follows it; None where it follows in another way.
_Factors = dict[int, float | None]
_SAME = {"Cast", "Identity", "StopGradient", "PreventGradient", "EnsureShape", "CheckNumerics"}
_SUMS = {"Add", "AddN", "AddV2"}
_DEVICES = 1 << 16  # more than a step is split over
_LAYER_SHIFT = 48  # above 2^32 steps of _DEVICES


def kept_by_step(
    before: Sequence[tf.Tensor], after: Sequence[tf.Tensor]
) -> tuple[float | None, ...]:
    """The factor of each state variable's old value in its new one after a step.

    Moving averages (BatchNorm's: its momentum) and counters (1) become `kept * old + something`,
    element by element, whatever the batch. The operations between the old value and the new one say
    so: sums, differences, and products with constants. It is None where a step is something else,
    as for the vector of `keras.layers.SpectralNormalization`.
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
    """The factor of an operation's output in a variable, None for another dependence.

    Those of its inputs are `factors`, 0 for one that does not depend on the variable.
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
    """The one number of all elements of a constant tensor, None if there is none."""
    value = tf.get_static_value(tensor)
    if value is None or np.size(value) == 0 or np.any(value != np.ravel(value)[0]):
        return None
    number = float(np.ravel(value)[0])
    return number if math.isfinite(number) else None


def draw_of(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """The seed of a step, `[2]` int64, from that of the shard and epoch, scalar int64.

    `step` is the number of the batch in the shard, below 2^32, scalar int64.
    """
    return tf.stack([seed, step * _DEVICES])


def on_device(draw: tf.Tensor, index: int) -> tf.Tensor:
    """The seed of a part of a step, `[2]` int64."""
    return draw + tf.constant([0, index], tf.int64)


def of_layer(draw: tf.Tensor, index: int) -> tf.Tensor:
    """The initial state of a layer's generator, `[2]` int64.

    Keras counts up the second number with each draw, and takes both modulo 2^31 - 2: numbers that
    differ in higher bits only may be the same for it. So all bits are mixed; within one seed no two
    layers of any step begin with the same 64 of them, and 62 are used.
    """
    # On a GPU TensorFlow would make AddN of these sums, which has no kernel for uint64 there. It
    # takes seeds from the CPU's memory in any case.
    with tf.device("/device:CPU:0"):
        seed, position = tf.unstack(tf.bitcast(draw, tf.uint64))
        bits = id_check.mix(position + tf.constant(index << _LAYER_SHIFT, tf.uint64))
        bits = id_check.mix(seed + bits)
        high = tf.bitwise.right_shift(bits, tf.constant(33, tf.uint64))
        low = tf.bitwise.bitwise_and(bits, tf.constant((1 << 31) - 1, tf.uint64))
        return tf.cast(tf.stack([high, low]), tf.int64)


class ModelVariables:
    """Which variables of a model have their values on the ps, and how the others get theirs.

    `initial_dense` and `initial_state` are laid end to end, float32.
    """

    def __init__(self, model: keras.Model):
        self.dense: list[keras.Variable] = list(model.trainable_variables)
        self._fixed: list[keras.Variable] = list(model.non_trainable_variables)
        self._model = model
        self.state = [v for v in self._fixed if v.dtype == "float32"]
        for variable in self.dense:
            if variable.dtype != "float32":
                raise UserError(
                    f"variable {variable.path!r} has dtype {variable.dtype}; parameter servers "
                    "hold float32 only; use floatx float32, or a mixed precision policy"
                )
            if variable.constraint is not None:
                raise UserError(
                    f"variable {variable.path!r} has a constraint, which needs the whole variable "
                    "after each update; dense parameters are cut into equal parts, one per ps, "
                    "without regard to variables. Take a regularizer (or, if it is an Embedding's, "
                    "leave train.dense_table_bytes out)"
                )
        # Read now: a process that becomes a chief loses the variables it made before.
        self.initial_dense = _flatten(self.dense)
        self.initial_state = _flatten(self.state)
        self._constants = {
            v.path: v.numpy() for v in self._fixed if v.dtype != "float32" and not _is_seed(v)
        }

    def values(
        self, dense: Sequence[tf.Tensor], state: Sequence[tf.Tensor], seed: tf.Tensor
    ) -> list[tuple[keras.Variable, tf.Tensor]]:
        """All variables' values for a `keras.StatelessScope`; random layers draw from `seed`."""
        values = list(zip(self.dense, dense, strict=True))
        states, seeds = iter(state), 0
        for variable in self._fixed:
            if variable.dtype == "float32":
                value = next(states)
            elif _is_seed(variable):
                value = tf.cast(of_layer(seed, seeds), variable.dtype)
                seeds += 1
            else:
                value = tf.constant(self._constants[variable.path])
            values.append((variable, value))
        # Asked again: a compiled loss makes some when it is first computed.
        metrics = self._model.metrics_variables
        return values + [(v, tf.zeros(v.shape, v.dtype)) for v in metrics]

    def state_after(
        self, scope: keras.StatelessScope, values: Sequence[tuple[keras.Variable, Any]]
    ) -> list[tf.Tensor]:
        """New values of `state` at the end of a scope; the same tensor where nothing changed."""
        before = {id(variable): value for variable, value in values}
        for variable in self._fixed:
            changed = scope.get_current_value(variable) is not before[id(variable)]
            if changed and variable.dtype != "float32" and not _is_seed(variable):
                raise UserError(
                    f"variable {variable.path!r} ({variable.dtype}) changes while the model runs; "
                    "parameter servers keep float32 variables only, which workers change at the "
                    "same time: make it with add_weight(dtype='float32'), in which a counter is "
                    "exact up to 16,777,216, or count with a keras.metrics.Sum of the layer"
                )
        return [scope.get_current_value(variable) for variable in self.state]


def refuse_equal_paths(paths: Sequence[str]) -> None:
    """Refuses parameters that would be the same in a checkpoint."""
    twice = {path for path in paths if paths.count(path) > 1}
    if twice:
        raise UserError(
            f"build_model(): two variables have the path {min(twice)!r}, so that a checkpoint "
            "could not tell them apart; give their layers different names"
        )


def _is_seed(variable: keras.Variable) -> bool:
    return bool(variable.path.endswith("seed_generator_state"))


def _flatten(variables: Sequence[keras.Variable]) -> np.ndarray:
    pieces = [v.numpy().ravel() for v in variables]
    return np.concatenate([*pieces, np.zeros([0], np.float32)]).astype(np.float32)
