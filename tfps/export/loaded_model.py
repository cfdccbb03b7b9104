"""A model that training has exported, ready to predict; nothing of the training side is needed."""

import json
import math
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps import byte_size
from tfps.cluster import open_files, own_memory
from tfps.data.feature import Feature
from tfps.errors import RunError, UserError
from tfps.export.names import (
    FEATURES_SIGNATURE,
    GRAPH_FILE,
    SCHEMA_FILE,
    VARIABLES_DIRECTORY,
    variables_prefix,
)
from tfps.export.versions import newest_version
from tfps.model.inputs import pack_signature_inputs, signature_specs
from tfps.storage import files

FORMAT = 2
_MEND = "export the model again by training"


class ExportedModel:
    """A SavedModel with its schema.

    Attributes:
        directory: Where it was loaded from.
        features: The model's inputs.
        labels: What the model has learnt.
    """

    def __init__(self, directory: str, loaded: Any, schema: Mapping[str, Any]):
        """Checks that a SavedModel and a schema belong together.

        Args:
            directory: Where both were loaded from.
            loaded: What `tf.saved_model.load` returned.
            schema: Content of the schema's file.

        Raises:
            UserError: If they are not what an export of tfps has.
        """
        self.directory = directory
        self._loaded = loaded
        where = f"--model={directory}: {SCHEMA_FILE}"
        features = schema.get("features")
        if not isinstance(features, list) or not features:
            raise UserError(f"{where}: 'features' is not a list of features; {_MEND}")
        self.features = tuple(_feature(item, f"{where}: features") for item in features)
        labels = schema.get("labels")
        if not isinstance(labels, list):
            raise UserError(f"{where}: 'labels' is not a list of labels; {_MEND}")
        self.labels = tuple(_feature(item, f"{where}: labels") for item in labels)
        self._schemas = {item["name"]: item for item in features}
        self._label_schemas = {item["name"]: item for item in labels}
        self._signature = self._checked_signature()

    @classmethod
    def load(cls, directory: str) -> Self:
        """Loads a model and its schema.

        Args:
            directory: `JOB_DIR/export` of a training run, for its newest version; or a version's.
                Local or `gs://`.

        Raises:
            UserError: If there is no such model, it is not one of tfps, or larger than the memory
                of this process.
            StorageError: If the storage does not answer.
        """
        directory = newest_version(directory) or directory
        try:
            schema = _schema(directory)
            _refuse_too_large(directory)
            values = files.names(posixpath.join(directory, VARIABLES_DIRECTORY))
            open_files.allow_for_files(len(values), f"--model={directory}")
            loaded = tf.saved_model.load(directory)
        except tf.errors.OpError as error:
            raise UserError(f"--model={directory} cannot be read: {error.message}") from None
        except OSError as error:
            raise UserError(f"--model={directory} cannot be read: {error}") from None
        return cls(directory, loaded, schema)

    def predict(self, inputs: Mapping[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
        """Predicts one batch.

        Args:
            inputs: Tensors or arrays `[n, *shape]` by feature name, for shape `(None,)` a
                `tf.RaggedTensor`.

        Returns:
            Predictions `[n, ...]` float32 by name, in the order of their names.

        Raises:
            RunError: If the model fails on them.
        """
        packed = pack_signature_inputs(inputs, self.features)
        try:
            outputs = self._signature(**{k: tf.convert_to_tensor(v) for k, v in packed.items()})
        except tf.errors.OpError as error:
            raise RunError(
                f"--model={self.directory} fails on the records it was given: {error.message}"
            ) from None
        return {name: np.asarray(outputs[name].numpy(), np.float32) for name in sorted(outputs)}

    def check_schema(
        self,
        features: Sequence[Mapping[str, Any]],
        labels: Sequence[Mapping[str, Any]],
        where: str,
    ) -> None:
        """Refuses records that are not those of the model.

        Args:
            features: `Feature.schema()` of all that the records hold; more than needed is fine.
            labels: The labels'; none of records without labels.
            where: What holds such records, for the message.

        Raises:
            UserError: Lists the differences.
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
        """The serving signature, which must have the schema's inputs."""
        where = f"--model={self.directory}"
        if FEATURES_SIGNATURE not in self._loaded.signatures:
            found = ", ".join(self._loaded.signatures) or "none"
            raise UserError(
                f"{where} has no signature {FEATURES_SIGNATURE!r} (found: {found}); {_MEND}"
            )
        signature = self._loaded.signatures[FEATURES_SIGNATURE]
        inputs = set(signature.structured_input_signature[1])
        wanted = set(signature_specs(self.features))
        if inputs != wanted:
            raise UserError(
                f"{where}: {FEATURES_SIGNATURE} has the inputs {', '.join(sorted(inputs))}, but "
                f"{SCHEMA_FILE} names {', '.join(sorted(wanted))}; {_MEND}"
            )
        if not signature.structured_outputs:
            raise UserError(f"{where}: {FEATURES_SIGNATURE} has no output; {_MEND}")
        return signature


def _schema(directory: str) -> dict[str, Any]:
    """Content of the schema file, after a look at what else the directory must hold."""
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
        raise UserError(f"{where} has no {SCHEMA_FILE}, so its inputs are not known; {_MEND}")
    with tf.io.gfile.GFile(path, "rb") as file:
        text = file.read().decode("utf-8", errors="replace")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON ({error}); {_MEND}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise UserError(f"{path} has format {found!r}, but this version reads {FORMAT}; {_MEND}")
    return dict(content)


def _refuse_too_large(directory: str) -> None:
    """Refuses a model whose variables do not fit into the memory of this process."""
    reader = tf.train.load_checkpoint(variables_prefix(directory))
    dtypes = reader.get_variable_to_dtype_map()
    held = sum(
        math.prod(shape) * dtypes[name].size
        for name, shape in reader.get_variable_to_shape_map().items()
    )
    limit = own_memory.limit()
    if held > limit:
        raise UserError(
            f"--model={directory}: its variables take {byte_size.show(held)}, and this process may "
            f"have {byte_size.show(limit)}; predict with its checkpoint on a cluster, where the "
            "tables are spread over ps (--job=predict, docs/predict.md), or export it with "
            "--export_dtype=int8"
        )


def _differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    return [
        f"{wanted['name']!r} has {key} {found.get(key)}, not {value}"
        for key, value in wanted.items()
        if found.get(key) != value
    ]


def _feature(content: Any, where: str) -> Feature:
    """A feature from its `Feature.schema()`."""
    if not isinstance(content, dict):
        raise UserError(f"{where}: {content!r} is not a feature; {_MEND}")
    name, dtype, shape = (content.get(key) for key in ("name", "dtype", "shape"))
    vocabulary = content.get("vocabulary_size")
    if (
        not (isinstance(name, str) and isinstance(dtype, str) and isinstance(shape, list))
        or not (shape == [None] or all(isinstance(size, int) and size > 0 for size in shape))
        or not isinstance(vocabulary, int)
    ):
        raise UserError(
            f"{where}: {content!r} lacks a good name, dtype, shape or vocabulary_size; {_MEND}"
        )
    return Feature(name, dtype, tuple(shape), vocabulary or None)
