"""The variables of a model, by what becomes of them."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.errors import UserError
from tfps.model import draws


class ModelVariables:
    """Which variables of a model have their values on the ps, and how the others get theirs.

    Attributes:
        initial_dense: Initial values of `dense`, laid end to end, float32.
        initial_state: Initial values of `state`, laid end to end, float32.
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
        """What every variable of the model is to be, for a `keras.StatelessScope`.

        Args:
            seed: `[2]` int64, from which every random layer draws.
        """
        values = list(zip(self.dense, dense, strict=True))
        states, seeds = iter(state), 0
        for variable in self._fixed:
            if variable.dtype == "float32":
                value = next(states)
            elif _is_seed(variable):
                value = tf.cast(draws.of_layer(seed, seeds), variable.dtype)
                seeds += 1
            else:
                value = tf.constant(self._constants[variable.path])
            values.append((variable, value))
        # Asked anew: a compiled loss makes some when it is first computed.
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
    """Refuses parameters that a checkpoint could not tell apart."""
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
