"""A model that training has exported, ready to predict, without the training side."""

import math
import posixpath
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps import arguments, byte_size
from tfps.cluster import resources
from tfps.cluster.failures import first_line
from tfps.errors import RunError, UserError, listed, reason_of
from tfps.export import deltas, exported_files
from tfps.export.changed_model import ChangedModel
from tfps.export.exported_files import (
    CHECKPOINT,
    DEFAULT,
    EXAMPLES_INPUT,
    EXAMPLES_SIGNATURE,
    FEATURES_SIGNATURE,
    GRAPH_FILE,
    HINT,
    SCHEMA_FILE,
    SLICES,
    VARIABLES,
    VARIABLES_DIRECTORY,
    ExportSchema,
    variables_prefix,
)
from tfps.export.keyed_slices import BYTES_PER_KEY
from tfps.export.row_lookups import ExportedTable, RowLookups
from tfps.export.shared_lock import SharedLock
from tfps.export.versions import newest_version
from tfps.model.inputs import pack_signature_inputs, signature_specs
from tfps.storage import files


class RefusedRecordsError(RunError):
    """The model's own operations refuse the records."""

    def __init__(self, message: str, reason: str):
        super().__init__(message)
        self.reason = reason


class ExportedModel:
    """A SavedModel with its schema.

    Attributes:
        directory: Where it was loaded from.
        features: The model's inputs.
        labels: What the model has learned.
        converted: Names of features that the config's `rows()` makes of raw cells: the model takes
            what these give.
        converted_labels: Names of such labels.
        variable_bytes: Memory of its variables, with the index of keys; 0 where not asked for.
        delta: Number of the delta that it has taken; 0 for the version as it was exported.
        is_closed: Whether it follows no version any more.
    """

    def __init__(
        self, directory: str, loaded: Any, schema: Mapping[str, Any], variable_bytes: int = 0
    ):
        """Checks that a SavedModel and the content of its schema's file belong together."""
        self.directory = directory
        self.variable_bytes = variable_bytes
        self._loaded = loaded
        where = f"--model={directory}: {SCHEMA_FILE}"
        read = ExportSchema.of(schema, where)
        self.features, self.labels = read.features, read.labels
        self.converted, self.converted_labels = (
            tuple(each.name for each in some if each.name in read.converted)
            for some in (self.features, self.labels)
        )
        self._arguments = read.arguments
        self._schemas = {item["name"]: item for item in schema["features"]}
        self._label_schemas = {item["name"]: item for item in schema["labels"]}
        self._signature = self._checked_signature()
        self._lookups = RowLookups(loaded, schema.get("tables"), where)
        self.delta = 0
        self._checkpoint = schema.get(CHECKPOINT)
        self._changed = ChangedModel(loaded, schema.get(VARIABLES, {}), f"--model={directory}")
        self._lock = SharedLock()
        self.is_closed = threading.Event()

    @classmethod
    @arguments.checked
    def load(cls, directory: str, beside_bytes: int = 0) -> Self:
        """Loads a model and its schema.

        Args:
            directory: `JOB_DIR/export` of a training run, for its newest version; or a version's.
                Local or `gs://`.
            beside_bytes: Memory of other models in this process.

        Raises:
            UserError: If there is no such model, it is not one of tfps, or larger than the memory
                of this process.
            StorageError: If the storage does not answer.
        """
        directory = newest_version(directory) or directory
        try:
            schema = _schema(directory)
            size = _checked_size(directory, beside_bytes)
            values = files.names(posixpath.join(directory, VARIABLES_DIRECTORY))
            resources.allow_files(len(values), f"--model={directory}")
            loaded = tf.saved_model.load(directory)
        except tf.errors.OpError as error:
            raise UserError(f"--model={directory} cannot be read: {error.message}") from None
        except OSError as error:
            raise UserError(f"--model={directory} cannot be read: {error}") from None
        return cls(directory, loaded, schema, size)

    @arguments.checked
    def predict(self, inputs: Mapping[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
        """Predicts one batch.

        Args:
            inputs: Tensors or arrays `[n, *shape]` by feature name, for shape `(None,)` a
                `tf.RaggedTensor`.

        Returns:
            Predictions `[n, ...]` float32 by name, sorted by name.

        Raises:
            UserError: If one is missing, or of another dtype or shape.
            RefusedRecordsError: If an operation refuses them, such as one that decodes images.
            RunError: If the model fails on them for another reason.
        """
        for feature in self.features:
            if feature.name not in inputs:
                raise UserError(
                    f"--model={self.directory} needs {listed(each.name for each in self.features)};"
                    f" {feature.name!r} is missing"
                )
            if feature.is_ragged and not isinstance(inputs[feature.name], tf.RaggedTensor):
                raise UserError(
                    f"--model={self.directory}: {feature.name!r} varies in length: give a "
                    "tf.RaggedTensor"
                )
        packed = pack_signature_inputs(inputs, self.features)
        given = {self._arguments.get(name, name): value for name, value in packed.items()}
        return self._answer(lambda: self._signature, given)

    @arguments.checked
    def predict_examples(self, serialized: Sequence[bytes]) -> dict[str, npt.NDArray[np.float32]]:
        """Predicts one batch of serialized `tf.train.Example`s, as in a TFRecord; as `predict`.

        Raises:
            UserError: If the model has no signature for them.
            RefusedRecordsError: If one is none, or lacks a feature.
            RunError: If the model fails on them for another reason.
        """
        if EXAMPLES_SIGNATURE not in self.signatures:
            raise UserError(
                f"--model={self.directory} has no signature {EXAMPLES_SIGNATURE!r}; {HINT}"
            )
        inputs = {EXAMPLES_INPUT: tf.constant(serialized, tf.string)}
        return self._answer(lambda: self._loaded.signatures[EXAMPLES_SIGNATURE], inputs)

    def update(self) -> bool:
        """Takes the newest delta of its version (`train.export_deltas`); False if it has it.

        A prediction is made with all of a delta or none of it: it waits while values change.

        Raises:
            UserError: If the delta is of another model.
            RunError: If it cannot be read.
            StorageError: If the storage does not answer.
        """
        newest = max(deltas.numbers(self.directory), default=0)
        if newest <= self.delta:
            return False
        path = deltas.path_of(self.directory, newest)
        try:
            described = deltas.describe(path)
        except FileNotFoundError:
            raise RunError(f"{path} was deleted meanwhile; a newer one is there") from None
        if described.version != self._checkpoint:
            raise UserError(
                f"{path} is of the model of checkpoint {described.version}, not {self._checkpoint}"
            )
        values = deltas.read(path)
        self._changed.prepare(values)
        with self._lock.alone():
            self._changed.apply(values)
            self.delta = newest
        return True

    def close(self) -> None:
        """Ends following (`tfps.load_model`); the model stays as it is."""
        self.is_closed.set()

    def become_newest(self, base: str) -> None:
        """Becomes the newest version in a directory, with its newest delta; errors as `load`."""
        newest = newest_version(base)
        if newest is None or newest == self.directory:
            self.update()
            return
        other = ExportedModel.load(newest, self.variable_bytes)
        other.update()
        with self._lock.alone():
            kept = {"_lock": self._lock, "is_closed": self.is_closed}
            self.__dict__.update({**other.__dict__, **kept})

    @property
    def signatures(self) -> tuple[str, ...]:
        """Names of its signatures, sorted."""
        return tuple(sorted(self._loaded.signatures))

    def _answer(
        self, signature: Callable[[], Any], inputs: Mapping[str, Any]
    ) -> dict[str, npt.NDArray[np.float32]]:
        where = f"--model={self.directory} fails on the records it was given"
        try:
            given = {name: tf.convert_to_tensor(value) for name, value in inputs.items()}
            # The signature is found under the lock: the model may have become another version.
            with self._lock.shared():
                outputs = signature()(**given)
        except tf.errors.InvalidArgumentError as error:
            raise RefusedRecordsError(f"{where}: {error.message}", first_line(error)) from None
        except tf.errors.OpError as error:
            raise RunError(f"{where}: {error.message}") from None
        except (TypeError, ValueError) as error:  # what TensorFlow says of other dtypes and shapes
            raise UserError(f"{where}: {reason_of(error)}") from None
        return {name: np.asarray(outputs[name].numpy(), np.float32) for name in sorted(outputs)}

    @property
    def tables(self) -> tuple[ExportedTable, ...]:
        """The tables of its embeddings, for `rows`."""
        return self._lookups.tables

    @arguments.checked
    def rows(self, table: str | ExportedTable, ids: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Rows of a table as the model looks them up, in whatever form they are kept.

        Args:
            table: One of `tables`, or its name.
            ids: Integers of any shape, each in the table.

        Returns:
            `[*shape, dim]` float32.

        Raises:
            UserError: If there is no such table, or an id is outside it.
            RunError: If they cannot be read.
        """
        name = table.name if isinstance(table, ExportedTable) else table
        with self._lock.shared():
            return self._lookups.rows(name, ids)

    def check_schema(
        self, features: Sequence[Mapping[str, Any]], labels: Sequence[Mapping[str, Any]], where: str
    ) -> None:
        """Refuses records, of whose schemas `where` names the source, that lack what it needs.

        `labels` is empty for records without labels; more features than needed are fine.
        """
        differences = []
        for wanted_ones, found_ones, kind in (
            (self._schemas, features, ""),
            (self._label_schemas if labels else {}, labels, "the label "),
        ):
            held = {schema["name"]: schema for schema in found_ones}
            for name, wanted in wanted_ones.items():
                found = held.get(name)
                missing = [f"{kind}{name!r} is missing"]
                differences += _differences(wanted, found) if found else missing
        if differences:
            more = f"; and {len(differences) - 5} more differences" if len(differences) > 5 else ""
            raise UserError(
                f"{where} holds other records than --model={self.directory}: "
                f"{'; '.join(differences[:5])}{more}. Name what the model was trained with"
            )

    def _checked_signature(self) -> Any:
        where = f"--model={self.directory}"
        if FEATURES_SIGNATURE not in self._loaded.signatures:
            found = ", ".join(self._loaded.signatures) or "none"
            raise UserError(
                f"{where} has no signature {FEATURES_SIGNATURE!r} (found: {found}); {HINT}"
            )
        signature = self._loaded.signatures[FEATURES_SIGNATURE]
        inputs = set(signature.structured_input_signature[1])
        wanted = {self._arguments.get(name, name) for name in signature_specs(self.features)}
        if inputs != wanted:
            raise UserError(
                f"{where}: {FEATURES_SIGNATURE} has the inputs {', '.join(sorted(inputs))}, but "
                f"{SCHEMA_FILE} names {', '.join(sorted(wanted))}; {HINT}"
            )
        if not signature.structured_outputs:
            raise UserError(f"{where}: {FEATURES_SIGNATURE} has no output; {HINT}")
        return signature


def _schema(directory: str) -> dict[str, Any]:
    """Content of the schema file, after a check of what else the directory must hold."""
    where = f"--model={directory}"
    if not files.is_directory(directory):
        state = "is a file" if files.exists(directory) else "does not exist"
        raise UserError(f"{where} {state}; name the export directory of a trained job")
    if not files.exists(posixpath.join(directory, GRAPH_FILE)):
        raise UserError(
            f"{where} is not a SavedModel (it has no {GRAPH_FILE}); name the export directory "
            "of a trained job"
        )
    path = posixpath.join(directory, SCHEMA_FILE)
    if not files.exists(path):
        raise UserError(f"{where} has no {SCHEMA_FILE}, so its inputs are not known; {HINT}")
    with tf.io.gfile.GFile(path, "rb") as file:
        return exported_files.decode(file.read(), path)


def _checked_size(directory: str, beside_bytes: int) -> int:
    """Memory of a model's variables, with the index of keys; this process must have it."""
    reader = tf.train.load_checkpoint(variables_prefix(directory))
    dtypes = reader.get_variable_to_dtype_map()
    held = 0
    for name, shape in reader.get_variable_to_shape_map().items():
        held += math.prod(shape) * dtypes[name].size
        if name.startswith(f"{SLICES}/") and dtypes[name] == tf.int64:  # the hashes of keys
            held += math.prod(shape) * BYTES_PER_KEY
    limit = resources.memory_limit()
    if held + beside_bytes > limit:
        others = f" next to {byte_size.show(beside_bytes)} of others" if beside_bytes else ""
        raise UserError(
            f"--model={directory}: its variables take {byte_size.show(held)}, and this process may "
            f"have {byte_size.show(limit)}{others}; predict with its checkpoint on a cluster, "
            "where the tables are spread over ps (--job=predict, docs/predict.md), or export it "
            "with --train.export_dtype=int8"
        )
    return held


def _differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    return [
        f"{wanted['name']!r} has {key} {found.get(key)}, not {value}"
        for key, value in wanted.items()
        if found.get(key) != value and key != DEFAULT
    ]
