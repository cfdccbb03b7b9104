"""A user's Keras 3 model, taken apart so that its parameters can live on the ps."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps import signature_inputs
from tfps.embedding_layers import Answer, EmbeddingLayers, zero_rows
from tfps.errors import UserError
from tfps.feature import Feature
from tfps.model_inputs import call_with_symbols, model_inputs
from tfps.task import Task

Features = Mapping[str, tf.Tensor]


class Lookup(NamedTuple):
    """One call of an `Embedding` layer within a forward pass.

    Attributes:
        table: Index of the layer's table.
        ids: The ids it was called with, any shape, int32 or int64.
    """

    table: int
    ids: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Forward:
    """What a forward pass yields.

    Attributes:
        outputs: The model's outputs.
        state: New values of the model's state, in the order of `StatelessModel.state`.
        losses: Sum of the layers' own losses (regularizers, `add_loss`), scalar float32.
    """

    outputs: Any
    state: list[tf.Tensor]
    losses: tf.Tensor


class StatelessModel:
    """A model without parameters of its own: they are given to every call.

    `keras.layers.Embedding` layers hold no table. A forward pass is traced twice: `lookups` runs
    the model to learn which ids its embedding layers ask for, in which order (what the layers
    answer does not matter then and is pruned from the graph); `forward` runs it again with the rows
    that were pulled.

    Attributes:
        tables: One per embedding layer, in the order in which the layers were built.
        dense: The other trainable variables.
        state: Floating-point variables that no gradient changes, such as BatchNorm statistics.
        initial_dense: Initial values of `dense`, laid end to end, float32.
        initial_state: Initial values of `state`, laid end to end, float32.
    """

    def __init__(self, task: Task, seed: int, dense_table_bytes: int = 0):
        """Builds the model.

        Args:
            task: The task.
            seed: Of the dense variables' initial values.
            dense_table_bytes: Tables of at most so many bytes stay dense.

        Raises:
            UserError: If the model has what parameter servers cannot hold, or does not fit the
                task's features.
        """
        keras.utils.clear_session()  # equal names, whatever was built before in this process
        # Keras would wrap a UserError in a description of the failing layer's arguments.
        keras.config.disable_traceback_filtering()
        keras.utils.set_random_seed(seed)
        self._layers = EmbeddingLayers(dense_table_bytes)
        self.tables = self._layers.tables
        with self._layers.taken_over():
            self._model = task.build_model()
            self._features = task.features()
            self.call_once(self._model, self._features)
        self.dense: list[keras.Variable] = list(self._model.trainable_variables)
        self._fixed: list[keras.Variable] = list(self._model.non_trainable_variables)
        self.state = [v for v in self._fixed if v.dtype == "float32"]
        paths = [*(v.path for v in [*self.dense, *self.state]), *(t.name for t in self.tables)]
        _refuse_equal_paths(paths)
        # Read now: a process that becomes a chief loses the variables it made before.
        self.initial_dense = _flatten(self.dense)
        self.initial_state = _flatten(self.state)
        self._constants = {
            v.path: v.numpy() for v in self._fixed if v.dtype != "float32" and not _is_seed(v)
        }
        for variable in self.dense:
            if variable.dtype != "float32":
                raise UserError(
                    f"variable {variable.path!r} has dtype {variable.dtype}; parameter servers "
                    "hold float32 only; use floatx float32, or a mixed precision policy"
                )
            if variable.constraint is not None:
                raise UserError(
                    f"variable {variable.path!r} has a constraint, which is not supported, since "
                    "the ps apply gradients only; leave it out"
                )

    @staticmethod
    def call_once(model: keras.Model, features: Sequence[Feature]) -> None:
        """Calls a model with symbolic inputs, so that every layer is built and misfits show.

        Raises:
            UserError: If the model cannot be called with the features.
        """
        signature_inputs.specs(features)  # or an export would fail on their names
        try:
            call_with_symbols(model, features)
        except UserError:
            raise
        except Exception as error:
            names = ", ".join(f"{f.name} {f.dtype} {list(f.shape)}" for f in features)
            raise UserError(
                f"build_model(): the model cannot be called with the task's features "
                f"({names}): {error}"
            ) from error

    def lookups(self, features: Features, training: bool) -> list[Lookup]:
        """The ids that every call of an embedding layer asks for, in the order of the calls.

        Raises:
            UserError: If ids depend on what an embedding layer answered.
        """

        @tf.function(autograph=False)
        def trace(features: Features) -> list[tf.Tensor]:
            calls.clear()
            answers: list[tf.Tensor] = []

            def record(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
                _refuse_dependence(layer, ids, answers)
                calls.append(table)
                asked.append(ids)
                answers.append(zero_rows(layer, table, ids))
                return answers[-1]

            asked: list[tf.Tensor] = []
            constants = [tf.zeros(v.shape, v.dtype) for v in [*self.dense, *self.state]]
            dense, state = constants[: len(self.dense)], constants[len(self.dense) :]
            self._call(record, dense, state, tf.zeros([2], tf.int64), features, training)
            return asked

        calls: list[int] = []
        ids = trace(features)
        return [Lookup(table, i) for table, i in zip(calls, ids, strict=True)]

    def forward(
        self,
        dense: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        rows: Sequence[tf.Tensor],
        seed: tf.Tensor,
        features: Features,
        training: bool,
    ) -> Forward:
        """Runs the model.

        Args:
            dense: Values of `dense`.
            state: Values of `state`.
            rows: For every lookup of `lookups`, in its order, the rows `[*ids.shape, dim]`.
            seed: `[2]` int64, from which every random layer draws.
            features: One batch, by feature name.
            training: Whether layers behave as in training.
        """
        remaining = iter(rows)

        def answer(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
            return next(remaining)

        outputs, state_after, losses = self._call(answer, dense, state, seed, features, training)
        total = tf.add_n([tf.cast(loss, tf.float32) for loss in losses]) if losses else tf.zeros([])
        return Forward(outputs, state_after, total)

    def _call(
        self,
        answer: Answer,
        dense: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        seed: tf.Tensor,
        features: Features,
        training: bool,
    ) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        fixed = self._fixed_values(state, seed)
        with self._layers.answered_by(answer):
            outputs, fixed_after, losses = self._model.stateless_call(
                list(dense),
                fixed,
                model_inputs(self._model, self._features, features),
                training=training,
                return_losses=True,
            )
        after = []
        for variable, before, value in zip(self._fixed, fixed, fixed_after, strict=True):
            if variable.dtype == "float32":
                after.append(value)
            elif value is not before and not _is_seed(variable):
                raise UserError(
                    f"variable {variable.path!r} ({variable.dtype}) changes while the model runs; "
                    "parameter servers keep float32 variables only"
                )
        return outputs, after, losses

    def _fixed_values(self, state: Sequence[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
        """Values of the model's non-trainable variables, in the model's order."""
        states, seeds, values = iter(state), 0, []
        for variable in self._fixed:
            if variable.dtype == "float32":
                values.append(next(states))
            elif _is_seed(variable):
                # A layer counts up the second number with each draw; each layer starts apart.
                values.append(
                    tf.cast(seed + tf.constant([0, seeds << 16], tf.int64), variable.dtype)
                )
                seeds += 1
            else:
                values.append(tf.constant(self._constants[variable.path]))
        return values


def _refuse_equal_paths(paths: list[str]) -> None:
    twice = {path for path in paths if paths.count(path) > 1}
    if twice:
        raise UserError(
            f"build_model(): two variables have the path {min(twice)!r}, so that a checkpoint "
            "could not tell them apart; give their layers different names"
        )


def _is_seed(variable: keras.Variable) -> bool:
    return variable.path.endswith("seed_generator_state")


def _flatten(variables: Sequence[keras.Variable]) -> np.ndarray:
    pieces = [v.numpy().ravel() for v in variables]
    return np.concatenate([*pieces, np.zeros([0], np.float32)]).astype(np.float32)


def _refuse_dependence(
    layer: keras.layers.Layer, ids: tf.Tensor, answers: Sequence[tf.Tensor]
) -> None:
    """Ids made from another layer's rows would need a second pull within a step."""
    rows = {id(answer.op) for answer in answers}
    seen, waiting = set(), [ids.op]
    while waiting:
        op = waiting.pop()
        if id(op) in rows:
            raise UserError(
                f"layer {layer.path!r}: its ids depend on another Embedding layer's output; "
                "on parameter servers ids must be computed from the model's inputs alone"
            )
        if id(op) not in seen:
            seen.add(id(op))
            waiting.extend(tensor.op for tensor in op.inputs)
