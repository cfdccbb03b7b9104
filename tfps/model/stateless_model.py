"""A user's Keras 3 model, taken apart so that its parameters can live on the ps."""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfps.errors import RunError, UserError
from tfps.experiment.task import Task
from tfps.model import keras_patches
from tfps.model.builder import account, build_model, place_of
from tfps.model.embedding_layers import (
    Answer,
    EmbeddingLayers,
    WholeTableUsedError,
    noted_zero_rows,
    refuse_late,
)
from tfps.model.inputs import batch_records, batch_spec, model_inputs, predict_by_name
from tfps.model.layer_metrics import LayerMetrics
from tfps.model.lookup_tables import holders_of, lookup_tables_taken_over, numberings_of
from tfps.model.loss import LossFunction, LossScaling, loss_scaling
from tfps.model.variables import ModelVariables, kept_by_step, refuse_equal_paths

_LOOPS = ("While", "StatelessWhile")

Features = Mapping[str, tf.Tensor]
Labels = Mapping[str, tf.Tensor]


class Lookup(NamedTuple):
    """One call of an `Embedding` layer within a forward pass."""

    table: int
    ids: tf.Tensor  # of any shape, int32 or int64


@dataclasses.dataclass(frozen=True)
class Forward:
    """The results of a forward pass."""

    outputs: Any
    state: list[tf.Tensor]  # new values, in the order of `StatelessModel.state`
    loss: tf.Tensor  # of the step, the model's own losses included; scalar float32
    measured: dict[str, tf.Tensor]  # by metric, as of `LayerMetrics.states`


class StatelessModel:
    """A model without parameters of its own: every call gets them.

    `keras.layers.Embedding` layers and those derived from them hold no table, except where the
    whole table is used, which shows when the model is tried. A forward pass is traced twice:
    `lookups` runs the model to learn which ids its embedding layers look up, in which order (their
    output does not matter then and is pruned from the graph); `forward` runs it again with the rows
    that were pulled.

    Both are traced once when the model is made, so that a model that cannot work is refused then.

    Attributes:
        state_kept: The factor of each state variable in a training step that adds something to it;
            None where a step does something else.
        state_changes: Whether a training step changes each state variable.
        initial_dense: Initial values of `dense`, laid end to end, float32.
        initial_state: Initial values of `state`, laid end to end, float32.
        prediction_shapes: Shape of one record's predictions by their names; None where it varies.
        gathered: Paths of dense variables that a training step uses for lookups of rows alone.
        has_loops: Whether its graph has loops, as that of a recurrent layer.
        unreachable: Resources of this process that the model uses, such as a `tf.Variable` or a
            `MutableHashTable`: closures on workers cannot reach them.
    """

    def __init__(self, task: Task, seed: int, dense_table_bytes: int = 0):
        """Builds a task's model and tries it; tables of at most `dense_table_bytes` stay dense."""
        self.seed = seed
        self._task = task
        self._features = task.features()
        self._layers = EmbeddingLayers(dense_table_bytes)
        while not self._is_taken_apart():
            pass  # one layer more holds its table

    def _is_taken_apart(self) -> bool:
        """Takes the model apart, unless a layer needs the whole table that it does not have."""
        try:
            self._take_apart()
        except Exception as error:
            used = WholeTableUsedError.behind(error)
            if used is None:
                self._refuse_failing(error)
                raise
            self._layers = self._layers.begin_again(used)
            return False
        return True

    def _refuse_failing(self, error: Exception) -> None:
        """Refuses a model whose own code has failed while it was traced."""
        is_known = isinstance(error, (UserError, RunError)) or not hasattr(self, "_model")
        if not is_known and place_of(error, self._model):
            raise UserError(
                "build_model(): the model cannot be trained, since its code fails when TensorFlow "
                f"makes a graph of it: {account(error, self._model)}"
            ) from error

    def _take_apart(self) -> None:
        """Builds the model, sorts its variables, and tries it."""
        self.tables = self._layers.tables
        with self._layers.taken_over(), lookup_tables_taken_over():
            self._model = build_model(self._task, self.seed)
        self._own_metrics = list(self._model.metrics)  # before the loss has any
        self.layer_metrics = LayerMetrics(type(self._model))
        self._layers.refuse_made_before(self._model)
        self._layers.leave_out_strangers(self._model)
        self.numberings = numberings_of(self._model)
        self._loss = LossFunction(self._task, self._model)
        self.loss_scaling: LossScaling | None = loss_scaling(self._task, self._model, self.tables)
        self._variables = ModelVariables(self._model)
        self.dense, self.state = self._variables.dense, self._variables.state
        is_trained = self.dense or any(table.is_trained for table in self.tables)
        if (self.state or self.tables) and not is_trained:
            raise UserError(
                "build_model(): nothing in the model is trainable; leave trainable=False out"
            )
        self.initial_dense = self._variables.initial_dense
        self.initial_state = self._variables.initial_state
        paths = [*(v.path for v in [*self.dense, *self.state]), *(t.name for t in self.tables)]
        refuse_equal_paths(paths)
        # Traced once, however many steps a closure is unrolled into.
        self._asked_ids = {
            training: tf.function(
                functools.partial(self._ask, training), autograph=False, reduce_retracing=True
            )
            for training in (False, True)
        }
        self._asked_tables: dict[bool, list[int]] = {}
        self.state_kept: tuple[float | None, ...] = ()
        self.state_changes: tuple[bool, ...] = ()
        self.gathered: tuple[str, ...] = ()
        self.has_loops = False
        self.prediction_shapes, self.unreachable = self._try_out()

    def build_without(self, tables: Collection[str]) -> tuple[keras.Model, EmbeddingLayers]:
        """The task's model with all its variables but some tables, and the layers without them."""
        layers = EmbeddingLayers.only(tables)
        with layers.taken_over():
            return build_model(self._task, self.seed), layers

    @property
    def has_half_precision(self) -> bool:
        layers = keras_patches.layers_of(self._model)
        return any(layer.compute_dtype in ("float16", "bfloat16") for layer in layers)

    @property
    def prediction_names(self) -> tuple[str, ...]:
        return tuple(self.prediction_shapes)

    def lookups(self, features: Features, training: bool) -> list[Lookup]:
        """The ids of every call of an embedding layer, in the order of the calls."""
        ids = self._asked_ids[training](features)
        return [Lookup(*call) for call in zip(self._asked_tables[training], ids, strict=True)]

    def forward(
        self,
        dense: Sequence[tf.Tensor],
        state: Sequence[tf.Tensor],
        rows: Sequence[tf.Tensor],
        seed: tf.Tensor,
        features: Features,
        labels: Labels,
        training: bool,
    ) -> Forward:
        """Runs the model and computes its loss.

        `rows` are those of each lookup of `lookups`, `[*ids.shape, dim]`; every random layer draws
        from `seed`, `[2]` int64.
        """
        remaining = iter(rows)

        def answer(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
            return next(remaining)

        values = self._variables.values(dense, state, seed)
        return self._forward(answer, values, features, labels, training)

    def _ask(self, training: bool, features: Features) -> list[tf.Tensor]:
        """The ids of `lookups`; notes their tables while it is traced."""
        calls: list[Lookup] = []
        answers: list[tf.Tensor] = []
        zeros = noted_zero_rows(answers)

        def record(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
            calls.append(Lookup(table, ids))
            return zeros(layer, table, ids)

        inputs = model_inputs(self._model, self._features, features)
        with self._layers.answered_by(record), keras.StatelessScope(state_mapping=self._zeros()):
            self._model(inputs, training=training)
        self._asked_tables[training] = [call.table for call in calls]
        return [call.ids for call in calls]

    def _forward(
        self,
        answer: Answer,
        values: Sequence[tuple[keras.Variable, tf.Tensor]],
        features: Features,
        labels: Labels,
        training: bool,
    ) -> Forward:
        inputs = model_inputs(self._model, self._features, features)
        means = [v for metric in self._loss.trackers for v in metric.variables]
        given = [*values, *((v, tf.zeros(v.shape, v.dtype)) for v in means)]
        with keras.StatelessScope(state_mapping=given, collect_losses=True) as scope:
            with self._layers.answered_by(answer):
                outputs = self._model(inputs, training=training)
            with self._layers.answered_by(refuse_late):
                loss = self._loss(features, labels, inputs, outputs, training)
                losses = {}
                if not training:
                    losses = self._loss.of_outputs(scope, features, labels, outputs)
        state = self._variables.state_after(scope, values)
        self._noted_metrics = self._updated_metrics(scope, values)
        measured = self.layer_metrics.states(scope, losses, batch_records(features, labels))
        return Forward(outputs, state, loss, measured)

    def _updated_metrics(
        self, scope: keras.StatelessScope, values: Sequence[tuple[keras.Variable, tf.Tensor]]
    ) -> list[keras.metrics.Metric]:
        before = {id(variable): value for variable, value in values}
        return [
            metric
            for metric in self._own_metrics
            if any(scope.get_current_value(v) is not before.get(id(v)) for v in metric.variables)
        ]

    def _zeros(self) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Values where only their shapes matter."""
        dense, state = ([tf.zeros(v.shape) for v in some] for some in (self.dense, self.state))
        return self._variables.values(dense, state, tf.zeros([2], tf.int64))

    def _try_out(self) -> tuple[dict[str, tuple[int | None, ...]], tuple[str, ...]]:
        """Traces a training and an evaluation step without a batch; notes how the state changes."""
        shapes: dict[str, tuple[int | None, ...]] = {}
        updated: list[list[keras.metrics.Metric]] = []  # in training, in an evaluation
        losses: list[str] = []

        # Arguments, not numbers: a layer that decides by a value must be traced with both ends.
        @tf.function(autograph=False)
        def training_step(
            dense: list[tf.Tensor], state: list[tf.Tensor], features: Features, labels: Labels
        ) -> None:
            values = self._variables.values(dense, state, tf.zeros([2], tf.int64))
            rows: list[tf.Tensor] = []
            forward = self._forward(noted_zero_rows(rows), values, features, labels, True)
            updated.append(self._noted_metrics)
            self.state_kept = kept_by_step(state, forward.state)
            self.state_changes = tuple(
                new is not old for new, old in zip(forward.state, state, strict=True)
            )
            found = tf.gradients(
                forward.loss, [*dense, *rows], unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            self.gathered = tuple(
                variable.path
                for variable, gradient in zip(self.dense, found, strict=False)
                if isinstance(gradient, tf.IndexedSlices)
            )

        @tf.function(autograph=False)
        def evaluation_step(features: Features, labels: Labels) -> None:
            forward = self._forward(noted_zero_rows([]), self._zeros(), features, labels, False)
            updated.append(self._noted_metrics)
            losses.extend(forward.measured)  # no other metric is chosen yet
            for name, value in predict_by_name(self._task, forward.outputs).items():
                shapes[name] = tuple(value.shape[1:])

        specs = [
            {feature.name: batch_spec(feature) for feature in some}
            for some in (self._features, self._task.labels())
        ]
        parameters = [[tf.TensorSpec(v.shape) for v in some] for some in (self.dense, self.state)]
        traced = [
            training_step.get_concrete_function(*parameters, *specs),
            evaluation_step.get_concrete_function(*specs),
        ]
        self.layer_metrics.choose(updated[1], updated[0], losses)
        self.has_loops = any(op.type in _LOOPS for op in traced[0].graph.get_operations())
        captured = [x for each in traced for x in each.captured_inputs if x.dtype == tf.resource]
        return shapes, holders_of(self._model, captured)
