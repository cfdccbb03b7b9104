"""The trained model as a SavedModel that needs nothing of tfps."""

import gc
import json
import posixpath
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.cluster.failures import lost_ps_behind
from tfps.errors import RunError, UserError
from tfps.experiment.task import Task
from tfps.export import schema_file
from tfps.export.loaded_model import ExportedModel
from tfps.export.names import GRAPH_FILE, SCHEMA_FILE, variables_prefix
from tfps.export.parameters import Parameters
from tfps.export.row_encoding import EXACT, RowEncoding
from tfps.export.row_lookups import ExportedTable
from tfps.export.sample import Predict, Sample
from tfps.export.schema_file import FORMAT, SIGNATURES
from tfps.export.serving_model import ServingModel, TrialModel
from tfps.export.sliced_variables import WrittenRun
from tfps.export.slices import write_slices
from tfps.export.warm_up import write_warm_up
from tfps.model.inputs import python_arguments, signature_specs
from tfps.model.stateless_model import Lookup, StatelessModel
from tfps.model.user_code import account
from tfps.storage import failures, files
from tfps.storage.paths import is_cloud
from tfps.store.layout import StoreLayout
from tfps.store.whole_tables import WHOLE_BYTES, groups_in_slices

EXPORT_BEST = "export_best"  # in the job_dir: the best model that an evaluator has seen
_WAY_OUT = (
    "make a file of Keras's of the checkpoint with python -m trainer.export --format=keras "
    "--checkpoint=JOB_DIR --config=CONFIG --output=MODEL.keras (or --format=weights)"
)
_TRIAL = "ram://tfps/trial_export"  # TensorFlow's file system in the memory of this process


class ExportForm(NamedTuple):
    """How an exported model keeps parameters.

    Attributes:
        encoding: How rows are kept; any but float32 puts all tables in slices.
        whole_bytes: Of all tables together that the process which exports them may hold; the rest
            is in slices.
    """

    encoding: RowEncoding = EXACT
    whole_bytes: int = WHOLE_BYTES


PLAIN = ExportForm()


def export(
    task: Task,
    parameters: Parameters,
    path: str,
    sample: Sample,
    form: ExportForm = PLAIN,
    facts: Mapping[str, Any] | None = None,
) -> Mapping[str, np.ndarray]:
    """Writes the model with its parameters, and looks whether it predicts what they do.

    The SavedModel has two signatures: `serving_default` takes the features by name, each
    `[n, *shape]`, one of shape `(None,)` as two tensors (see `inputs.signature_specs`);
    `serving_examples` takes `examples`, `[n]` serialized `tf.train.Example`. The output of both is
    `predictions`, or, for a task that predicts a dict, what its keys say. `schema.json` beside it
    describes features, labels and tables, for each of which the SavedModel's attribute `rows` has a
    function from ids to rows; with some of the sample's records a server warms the model up.

    Nobody sees half a model: on a disk its directory is renamed when it is whole, in a bucket
    `saved_model.pb` is written last.

    Args:
        path: Directory to write, which every ps must see when there are tables in slices. One that
            exists is replaced.
        sample: What the parameters predict, which the exported model must predict as well.
        facts: What else `schema.json` says, JSON-ready.
    """
    in_place = is_cloud(path)
    staged = path if in_place else f"{path}.tmp"
    if in_place:
        files.remove(posixpath.join(path, GRAPH_FILE))  # first: what is left is no model
    files.remove_tree(staged)
    try:
        with tempfile.TemporaryDirectory(prefix="tfps-export-") as local:
            written = local if in_place else staged
            found, schema = _write(task, parameters, (written, staged), sample, form)
            schema["sizes"] = _sizes(written) | _sizes(staged)
            files.write(posixpath.join(staged, SCHEMA_FILE), _json({**schema, **(facts or {})}))
            if in_place:
                _copy(written, staged, [GRAPH_FILE])
    except (OSError, tf.errors.OpError) as error:
        if lost_ps_behind(error):
            raise
        raise failures.explain(error, "written", staged) from None
    except (RunError, UserError):
        files.remove_tree(staged)
        raise
    except Exception as error:  # whatever TensorFlow says of whatever a model may hold
        files.remove_tree(staged)
        raise RunError(
            f"the model cannot be exported as a SavedModel: {account(error)}. What was trained is "
            f"in the checkpoint: {_WAY_OUT}"
        ) from error
    if not in_place:
        files.sync_tree(staged)
        _replace(path, staged)
    return found


def _write(
    task: Task,
    parameters: Parameters,
    places: tuple[str, str],
    sample: Sample,
    form: ExportForm,
) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
    """Writes all but the schema, and tries it.

    Returns:
        What it predicts of the sample, by name; and its schema.
    """
    written, staged = places
    limit = form.whole_bytes if form.encoding.is_exact else 0
    in_slices = groups_in_slices(parameters.layout, limit)
    model, layout = parameters.model, parameters.layout
    serving = ServingModel(task, model, layout, in_slices, form.encoding)
    serving.assign(parameters)
    serving.save(written)
    schema = _schema(task, serving.tables)
    write_warm_up(written, task.features(), sample.features)
    if written != staged:
        _copy(written, staged, [name for name in _tree(written) if name != GRAPH_FILE])
    if in_slices:
        runs = write_slices(staged, serving.slices, parameters)
        gathers = _read_again(staged, serving, runs, model.lookups(sample.features, training=False))
        found = sample.loosened(form.encoding).refuse_different(_asks(serving, gathers))
        return found, schema
    del serving
    gc.collect()  # a Keras model holds itself, and its tables are needed once more
    loaded = ExportedModel(written, tf.saved_model.load(written), schema)
    return sample.refuse_different(loaded.predict), schema


def _tree(directory: str) -> list[str]:
    """Paths of all files in a directory, relative to it."""
    return [
        posixpath.relpath(posixpath.join(parent, name), directory)
        for parent, _, names in tf.io.gfile.walk(directory)
        for name in names
    ]


def _sizes(directory: str) -> dict[str, int]:
    """Bytes of all files in a directory, by their paths relative to it."""
    return {
        name: tf.io.gfile.stat(posixpath.join(directory, name)).length for name in _tree(directory)
    }


def _copy(directory: str, target: str, names: Sequence[str]) -> None:
    for name in names:
        path = posixpath.join(target, name)
        tf.io.gfile.makedirs(posixpath.dirname(path))
        tf.io.gfile.copy(posixpath.join(directory, name), path, overwrite=True)


def try_export(task: Task, model: StatelessModel, layout: StoreLayout) -> None:
    """Finds out before the training whether a model can be exported after it.

    The model is saved as a trial, in memory, without its embedding tables.
    """
    trial = TrialModel(task, model, layout)
    try:
        trial.save(_TRIAL)
        ExportedModel(_TRIAL, tf.saved_model.load(_TRIAL), _schema(task, ()))
    except Exception as error:  # whatever TensorFlow says of whatever a model may hold
        raise UserError(
            "build_model(): the model can be trained, but not exported as a SavedModel: "
            f"{trial.account(error)}. Change that, or train with --train.export=none and {_WAY_OUT}"
        ) from error
    finally:
        if tf.io.gfile.exists(_TRIAL):
            tf.io.gfile.rmtree(_TRIAL)


def _read_again(
    directory: str,
    serving: ServingModel,
    runs: Mapping[int, Sequence[WrittenRun]],
    lookups: Sequence[Lookup],
) -> dict[int, Any]:
    """The rows of lookups as the files have them, by the index of their group."""
    tables = serving.model.tables
    asked = [(tables[lookup.table].name, lookup.ids.numpy()) for lookup in lookups]
    return {
        index: group.read(
            variables_prefix(directory),
            runs[index],
            [(name, ids) for name, ids in asked if name in group.tables],
        )
        for index, group in serving.slices.items()
    }


def _asks(serving: ServingModel, gathers: Mapping[int, Any]) -> Predict:
    """What asks the model that was written, without all rows of its tables."""
    predict = tf.function(lambda features: serving.predict(features, gathers), autograph=False)

    def ask(features: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in predict(features).items()}

    return ask


def _replace(path: str, new: str) -> None:
    """Puts a directory in another's place: two renamings, since no single one replaces it."""
    old = f"{path}.old"
    files.remove_tree(old)
    if files.exists(path):
        files.rename(path, old)
    files.rename(new, path)
    files.sync([posixpath.dirname(path)])
    files.remove_tree(old)


def _json(schema: Mapping[str, Any]) -> bytes:
    return (json.dumps(schema, indent=1) + "\n").encode()


def _schema(task: Task, tables: Sequence[ExportedTable]) -> dict[str, Any]:
    """What `ExportSchema` and `RowLookups` read of the model."""
    return {
        "format": FORMAT,
        "features": [schema_file.encode(feature) for feature in task.features()],
        "labels": [label.schema() for label in task.labels()],
        "signatures": SIGNATURES,
        "arguments": python_arguments(signature_specs(task.features())),
        "tables": [table._asdict() for table in tables],
    }
