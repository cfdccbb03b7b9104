"""The trained model for serving: with its small tables, and places for the large ones."""

import functools
import posixpath
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap

from tfps.data import examples
from tfps.errors import UserError
from tfps.experiment.task import Task
from tfps.export.exported_files import (
    EXAMPLES_INPUT,
    EXAMPLES_SIGNATURE,
    FEATURES_SIGNATURE,
    GRAPH_FILE,
)
from tfps.export.keyed_slices import KeyedSlices
from tfps.export.parameters import GroupInSlices, Parameters, assign_values, values_by_path
from tfps.export.row_lookups import ExportedTable, lookup_of
from tfps.export.sliced_variables import EXACT, RowEncoding, SlicedGroup
from tfps.layers.dynamic_embedding import DynamicEmbedding
from tfps.layers.embedding import check_ids
from tfps.model import inputs, keras_patches
from tfps.model.builder import account
from tfps.model.embedding_layers import zero_rows
from tfps.model.inputs import model_inputs, predict_by_name
from tfps.model.lookup_tables import resources_of, users_of_others
from tfps.model.stateless_model import Features, StatelessModel
from tfps.storage import files
from tfps.store.group_layout import GroupLayout
from tfps.store.keyed_layout import KeyedLayout
from tfps.store.layout import StoreLayout

# TensorFlow registers the message, but has no public name for it.
_SavedModel = message_factory.GetMessageClass(
    descriptor_pool.Default().FindMessageTypeByName("tensorflow.SavedModel")
)


def read_signature_defs(directory: str) -> SignatureDefMap:
    """The signatures of a SavedModel: names, dtypes and shapes of inputs and outputs."""
    path = posixpath.join(directory, GRAPH_FILE)
    try:
        graphs = _SavedModel.FromString(files.read(path)).meta_graphs
    except DecodeError:
        raise UserError(f"{path} is not a SavedModel's graph; export the model again") from None
    if len(graphs) != 1:
        raise UserError(f"{path} has {len(graphs)} graphs, not one; export the model again")
    found = SignatureDefMap()
    for name, signature in graphs[0].signature_def.items():
        found.signature_def[name].CopyFrom(signature)
    return found


def rename_inputs(directory: str, signature: str, names: Mapping[str, str]) -> None:
    """Renames inputs of a signature for TensorFlow's servers.

    `tf.saved_model.load` finds functions by the object graph, where their names stay.
    """
    path = posixpath.join(directory, GRAPH_FILE)
    with tf.io.gfile.GFile(path, "rb") as file:
        saved = _SavedModel.FromString(file.read())
    for graph in saved.meta_graphs:
        inputs = graph.signature_def[signature].inputs
        for present, name in names.items():
            inputs[name].CopyFrom(inputs[present])
            del inputs[present]
    tf.io.gfile.remove(path)  # in TensorFlow's ram:// what is written is appended
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))


class ServingModel:
    """A task's own model, with its parameters but for tables that fit in no process."""

    def __init__(
        self,
        task: Task,
        model: StatelessModel,
        layout: StoreLayout,
        in_slices: Sequence[int],
        encoding: RowEncoding = EXACT,
    ):
        """Builds the model again, with initial values; `in_slices` are indices of groups."""
        self._task = task
        self.model = model
        self.slices: dict[int, GroupInSlices] = {
            index: _group_in_slices(layout.groups[index].layout, encoding, number)
            for number, index in enumerate(in_slices)
        }
        self._group_of = {table: k for k, group in self.slices.items() for table in group.tables}
        self._keras_model, self._layers = model.build_without(self._group_of.keys())
        self._whole = _whole_tables(self._keras_model, self._group_of.keys())
        layers = keras_patches.layers_of(self._keras_model)
        dynamic = [each for each in layers if isinstance(each, DynamicEmbedding)]
        self._dynamic = {f"{each.table.path}/embeddings": each for each in dynamic}
        in_groups = [
            ExportedTable(t.name, None if t.keys else t.rows, t.dim) for t in self._layers.tables
        ]
        whole = [ExportedTable(name, *each.embeddings.shape) for name, each in self._whole.items()]
        self.tables = [*in_groups, *whole]

    def assign(self, parameters: Parameters) -> None:
        """Sets its parameters, but for the rows of tables in slices."""
        values = values_by_path(self.model, parameters, self._group_of.keys())
        assign_values(self._keras_model, values)

    def predict(
        self, features: Features, gathers: Mapping[int, Any] | None = None
    ) -> dict[str, tf.Tensor]:
        """The task's predictions by name, for features `[batch, *shape]` by name.

        `gathers` has what the groups in slices have read again, by index; without it their
        variables are used, which have no rows before they are restored.
        """

        def answer(layer: keras.layers.Embedding, table: int, ids: tf.Tensor) -> tf.Tensor:
            return self._rows_of(layer, table, ids, gathers)

        given = model_inputs(self._keras_model, self._task.features(), features)
        model = self._keras_model
        # What a layer measures is no part of an answer, and a server writes nothing down.
        metrics = [(v, tf.zeros(v.shape, v.dtype)) for v in model.metrics_variables]
        with keras.StatelessScope(metrics) as scope, self._layers.answered_by(answer):
            outputs = model(given, training=False)
        for variable in model.variables:  # such as what a layer draws with
            if (value := scope.get_current_value(variable)) is not None:
                variable.assign(value)
        return predict_by_name(self._task, outputs)

    def _rows_of(
        self,
        layer: keras.layers.Embedding,
        table: int,
        ids: tf.Tensor,
        gathers: Mapping[int, Any] | None,
    ) -> tf.Tensor:
        """The answer of a layer without a table."""
        name = self._layers.tables[table].name
        index = self._group_of[name]
        return self.slices[index].look_up(name, ids, gathers[index] if gathers else None)

    def account(self, error: Exception) -> str:
        """Why the model could not be saved, and because of which layer."""
        reason = account(error, self._keras_model)
        if not isinstance(error, AssertionError) or "'untracked' resource" not in reason:
            return reason
        # TensorFlow's own words are of Python objects that the user has not made.
        groups = self.slices.values()
        slices = [each for group in groups for each in (*group.variables, *group.resources)]
        users = users_of_others(self._keras_model, self._traced, [*self._held(), *slices])
        by = f" by layer {', '.join(map(repr, users))}" if users else ""
        return (
            f"a variable or lookup table is used{by} that is no attribute of a layer: make it one"
        )

    def look_up(self, table: str, ids: tf.Tensor) -> tf.Tensor:
        """The rows of ids `[n]` int64 as the model has them, `[n, dim]`."""
        if table in self._whole:
            rows = self._whole[table].embeddings
            return tf.gather(rows, check_ids(ids, rows.shape[0], table))
        rows = self.slices[self._group_of[table]].look_up(table, ids)
        layer = self._dynamic.get(table)
        return layer.with_unknown_row(rows) if layer else rows

    def places(self) -> dict[str, int]:
        """Where the SavedModel's `model` has each variable of numbers, by path."""
        held = {id(each): place for place, each in enumerate(self._held())}
        variables = [each for each in self._keras_model.variables if each.dtype == "float32"]
        return {each.path: held[id(each.value)] for each in variables}

    def save(self, path: str) -> None:
        """Writes a SavedModel, whose tables in slices have no rows."""
        features = self._task.features()
        specs = inputs.signature_specs(features)
        arguments = inputs.python_arguments(specs)

        @tf.function(autograph=False)
        def serve_features(**values: tf.Tensor) -> dict[str, tf.Tensor]:
            named = {name: values[arguments.get(name, name)] for name in specs}
            return self.predict(inputs.unpack_signature_inputs(named, features))

        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.string, EXAMPLES_INPUT)], autograph=False
        )
        def serve_examples(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
            return self.predict(examples.parse(serialized, features)[0])

        given = {arguments.get(name, name): spec for name, spec in specs.items()}
        self._traced = serve_features.get_concrete_function(
            **{name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in given.items()}
        )
        tf.saved_model.save(
            self._module(),
            path,
            signatures={FEATURES_SIGNATURE: self._traced, EXAMPLES_SIGNATURE: serve_examples},
        )
        if arguments:
            names = {argument: name for name, argument in arguments.items()}
            rename_inputs(path, FEATURES_SIGNATURE, names)

    def _module(self) -> tf.Module:
        """The objects of a SavedModel; `SlicedVariables.names` needs the name of `slices`.

        The Keras model itself is not among them: a SavedModel has two variables for each of
        Keras's, and the signatures read one; a loader of the graph alone, as TensorFlow Serving,
        restores the other.
        """
        module = tf.Module()
        module.model = self._held()
        module.slices = [group.variables for group in self.slices.values()]
        module.resources = [each for group in self.slices.values() for each in group.resources]
        module.rows = [
            lookup_of(table, functools.partial(self.look_up, table.name)) for table in self.tables
        ]
        return module

    def _held(self) -> list[Any]:
        """The variables and resources of the model, each once, or two places write it twice."""
        values = [each.value for each in self._keras_model.variables]
        held = [*values, *resources_of(self._keras_model)]
        return list({id(each): each for each in held}.values())


class TrialModel(ServingModel):
    """The same without any table, to check that the user's own model can be saved."""

    def __init__(self, task: Task, model: StatelessModel, layout: StoreLayout):
        super().__init__(task, model, layout, range(len(layout.groups)))

    def _rows_of(
        self, layer: keras.layers.Embedding, table: int, ids: tf.Tensor, gathers: Any
    ) -> tf.Tensor:
        return zero_rows(layer, table, ids)

    def _module(self) -> tf.Module:
        module = tf.Module()
        module.model = self._held()
        return module


def _group_in_slices(
    layout: GroupLayout | KeyedLayout, encoding: RowEncoding, number: int
) -> GroupInSlices:
    if isinstance(layout, KeyedLayout):
        return KeyedSlices(layout, encoding, number)
    return SlicedGroup(layout, encoding, number)


def _whole_tables(model: keras.Model, others: Collection[str]) -> dict[str, keras.layers.Embedding]:
    """The layers that hold their tables themselves, by table name."""
    layers = [x for x in keras_patches.layers_of(model) if isinstance(x, keras.layers.Embedding)]
    named = {f"{layer.path}/embeddings": layer for layer in layers if layer.built}
    return {name: layer for name, layer in named.items() if name not in others}
