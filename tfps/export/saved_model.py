"""The trained model as a SavedModel that needs nothing of tfps."""

import gc
import json
import logging
import posixpath
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.cluster.failures import lost_ps_behind
from tfps.data.named_columns import converted
from tfps.errors import RunError, UserError
from tfps.experiment.task import Task
from tfps.export import exported_files
from tfps.export.exported_files import (
    FORMAT,
    GRAPH_FILE,
    SCHEMA_FILE,
    SIGNATURES,
    VARIABLES,
    VARIABLES_NAME,
    variables_prefix,
)
from tfps.export.loaded_model import ExportedModel
from tfps.export.parameters import GroupInSlices, Parameters
from tfps.export.row_lookups import ExportedTable
from tfps.export.serving_model import ServingModel, TrialModel
from tfps.export.sliced_variables import EXACT, RowEncoding, WrittenRun
from tfps.export.versions import write_warm_up
from tfps.model.builder import account
from tfps.model.inputs import python_arguments, signature_specs
from tfps.model.stateless_model import Lookup, StatelessModel
from tfps.storage import failures, files
from tfps.storage.paths import is_cloud
from tfps.store.layout import WHOLE_BYTES, StoreLayout, groups_in_slices

# Of what is compared with the largest prediction: in float32, two graphs of one model differ by a
# few units of its last place (6e-8), many layers add up to more.
_ROUNDING = 1e-4
# bfloat16 has 8 bits: values that are rounded to it are off by up to 1/512, and layers add up.
_COARSE_ROUNDING = 0.05
_SMALLEST = 1e-6  # where predictions are next to nothing
# Of predictions that are whole numbers, such as classes: rounding may decide between two.
_FLIPPED = 0.01
Predict = Callable[[Mapping[str, Any]], Mapping[str, np.ndarray]]
_log = logging.getLogger(__name__)
_TRIAL = "ram://tfps/trial_export"  # TensorFlow's file system in the memory of this process


class Sample(NamedTuple):
    """Some records and the predictions of the trained parameters."""

    features: Mapping[str, Any]  # `[records, *shape]` by name, ragged for shape `(None,)`
    predictions: Mapping[str, np.ndarray]  # `[records, ...]` float32 by name
    rounding: float = _ROUNDING
    # of the task's `measured()`, `[records, ...]` by name; none of drawn records
    labels: Mapping[str, np.ndarray] = {}

    @classmethod
    def of(
        cls,
        model: StatelessModel,
        features: Mapping[str, Any],
        predictions: Mapping[str, np.ndarray],
        labels: Mapping[str, np.ndarray],
    ) -> "Sample":
        """A sample, with the rounding that two graphs of one model may differ by."""
        rounding = _COARSE_ROUNDING if model.has_half_precision else _ROUNDING
        return cls(features, predictions, rounding, labels)

    def loosened(self, encoding: RowEncoding) -> "Sample":
        """The sample for a model that keeps its rows in an encoding."""
        return self if encoding.is_exact else self._replace(rounding=_COARSE_ROUNDING)

    def refuse_different(self, predict: Predict) -> Mapping[str, np.ndarray]:
        """Compares the exported model's predictions with these; returns them.

        An output that differs between two calls is drawn at random: it cannot be compared, which is
        logged.
        """
        found, again = predict(self.features), predict(self.features)
        for name, wanted in self.predictions.items():
            if not np.array_equal(found[name], again[name], equal_nan=True):
                _log.warning(
                    "the exported model's output %r is drawn at random: it is not compared with "
                    "what was trained",
                    name,
                )
            else:
                self._refuse(name, wanted, found[name])
        return found

    def _refuse(self, name: str, wanted: np.ndarray, found: np.ndarray) -> None:
        if wanted.shape != found.shape:
            raise _different(name, f"has the shape {list(found.shape)}, not {list(wanted.shape)}")
        finite = wanted[np.isfinite(wanted)]
        limit = max(self.rounding * np.abs(finite).max(initial=0.0), _SMALLEST)
        with np.errstate(invalid="ignore"):
            off = np.abs(found.astype("f8") - wanted.astype("f8"))
        off[found == wanted] = 0.0  # infinite ones, too
        off[np.isnan(found) & np.isnan(wanted)] = 0.0
        differs = ~(off <= limit).reshape(len(wanted), -1).all(1)
        allowed = _FLIPPED * len(wanted) if _are_whole(wanted) and _are_whole(found) else 0
        if differs.sum() > allowed:
            record = int(differs.argmax())
            raise _different(
                name,
                f"differs on {int(differs.sum())} of {len(wanted)} records, first on record "
                f"{record}: {_shown(found[record])} exported, {_shown(wanted[record])} trained",
            )


def _are_whole(values: np.ndarray) -> bool:
    return bool(np.equal(np.trunc(values), values).all())


def _shown(values: np.ndarray) -> str:
    text = np.array2string(values.reshape(-1), precision=6, threshold=6, edgeitems=2)
    return " ".join(text.split())


def _different(name: str, what: str) -> RunError:
    return RunError(
        f"the exported model is not the one that was trained: its output {name!r} {what}. It is "
        "not put in place; what was trained is in the checkpoint. Look for a part of build_model() "
        "that makes something else when it is called again, such as a layer that is made from data "
        "or from random numbers without a seed"
    )


def write_slices(
    directory: str, groups: Mapping[int, GroupInSlices], parameters: Parameters
) -> dict[int, list[WrittenRun]]:
    """Writes rows into the variables of a SavedModel, which has them without any.

    TensorFlow's format knows tensors in slices: each process writes its own, and reading joins
    them.
    """
    prefix = variables_prefix(directory)
    runs = {index: parameters.write_group(index, group, prefix) for index, group in groups.items()}
    written = [run.prefix for some in runs.values() for run in some]
    _join(prefix, {name for group in groups.values() for name in group.names}, written)
    return runs


def _join(prefix: str, in_slices: set[str], written: Sequence[str]) -> None:
    """Replaces tensors without rows by slices."""
    dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
    if missing := sorted(in_slices - dtypes.keys()):
        raise RunError(
            f"TensorFlow {tf.__version__} names what a SavedModel holds otherwise than "
            f"{missing[0]!r}: tables in slices cannot be exported; use TensorFlow 2.21"
        )
    kept = sorted(dtypes.keys() - in_slices)
    whole = [""] * len(kept)
    others = f"{prefix}.others"
    values = tf.raw_ops.RestoreV2(
        prefix=prefix,
        tensor_names=kept,
        shape_and_slices=whole,
        dtypes=[dtypes[name] for name in kept],
    )
    tf.raw_ops.SaveV2(prefix=others, tensor_names=kept, shape_and_slices=whole, tensors=values)
    directory = posixpath.dirname(prefix)
    for name in files.names(directory):
        if name.startswith((f"{VARIABLES_NAME}.index", f"{VARIABLES_NAME}.data-")):
            files.remove(posixpath.join(directory, name))
    try:
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[others, *written], destination_prefix=prefix, delete_old_dirs=False
        )
    except tf.errors.OpError:
        if all(files.exists(f"{each}.index") for each in written):
            raise
        raise UserError(
            f"{directory} is not there for every ps, or another directory for one of them; name a "
            "place for the exported model that chief and ps see alike"
        ) from None


_WAY_OUT = (
    "make a file of Keras's of the checkpoint with python -m trainer.export --format=keras "
    "--checkpoint=JOB_DIR --config=CONFIG --output=MODEL.keras (or --format=weights)"
)


class ExportForm(NamedTuple):
    """How an exported model keeps parameters."""

    encoding: RowEncoding = EXACT  # of rows; any but float32 puts all tables in slices
    # of all tables that the exporting process may hold; the rest is in slices
    whole_bytes: int = WHOLE_BYTES

    def in_slices(self, layout: StoreLayout) -> tuple[int, ...]:
        """Indices of the groups in slices."""
        return groups_in_slices(layout, self.whole_bytes if self.encoding.is_exact else 0)


PLAIN = ExportForm()


def export(
    task: Task,
    parameters: Parameters,
    path: str,
    sample: Sample,
    form: ExportForm = PLAIN,
    facts: Mapping[str, Any] | None = None,
) -> Mapping[str, np.ndarray]:
    """Writes the model with its parameters, and compares its predictions with theirs.

    The SavedModel has two signatures: `serving_default` takes the features by name, each `[n,
    *shape]`, one of shape `(None,)` as two tensors (see `inputs.signature_specs`);
    `serving_examples` takes `examples`, `[n]` serialized `tf.train.Example`. The output of both is
    `predictions`, or the keys of a task that predicts a dict. `schema.json` describes features,
    labels and tables; the SavedModel's attribute `rows` has a function from ids to rows for each
    table. Some of the sample's records warm up a server.

    Half a model is never seen: on a disk its directory is renamed when it is whole, in a bucket
    `saved_model.pb` is written last. An existing directory is replaced; with tables in slices every
    ps must see it. `facts` are added to `schema.json`.
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
    task: Task, parameters: Parameters, places: tuple[str, str], sample: Sample, form: ExportForm
) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
    """Writes all but the schema, and tries it; its predictions by name, and its schema."""
    written, staged = places
    in_slices = form.in_slices(parameters.layout)
    model, layout = parameters.model, parameters.layout
    serving = ServingModel(task, model, layout, in_slices, form.encoding)
    serving.assign(parameters)
    serving.save(written)
    schema = {**_schema(task, serving.tables), VARIABLES: serving.places()}
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
    """Relative paths of all files in a directory."""
    return [
        posixpath.relpath(posixpath.join(parent, name), directory)
        for parent, _, names in tf.io.gfile.walk(directory)
        for name in names
    ]


def _sizes(directory: str) -> dict[str, int]:
    """Bytes of all files in a directory, by relative path."""
    return {
        name: tf.io.gfile.stat(posixpath.join(directory, name)).length for name in _tree(directory)
    }


def _copy(directory: str, target: str, names: Sequence[str]) -> None:
    for name in names:
        path = posixpath.join(target, name)
        tf.io.gfile.makedirs(posixpath.dirname(path))
        tf.io.gfile.copy(posixpath.join(directory, name), path, overwrite=True)


def try_export(task: Task, model: StatelessModel, layout: StoreLayout) -> None:
    """Checks before the training that a model can be exported after it.

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
    """The rows of lookups in the files, by the index of their group."""
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
    """Predicts with the model that was written, without all rows of its tables."""
    predict = tf.function(lambda features: serving.predict(features, gathers), autograph=False)

    def ask(features: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in predict(features).items()}

    return ask


def _replace(path: str, new: str) -> None:
    """Replaces a directory by two renamings, since no single one can."""
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
    """The content of the file for `ExportSchema` and `RowLookups`."""
    return {
        "format": FORMAT,
        "features": [exported_files.encode(feature) for feature in task.features()],
        "labels": [label.schema() for label in task.labels()],
        "converted": converted(task.rows(), [*task.features(), *task.labels()]),
        "signatures": SIGNATURES,
        "sizes": {},  # until all is written
        "arguments": python_arguments(signature_specs(task.features())),
        "tables": [table._asdict() for table in tables],
    }
