"""The trained model as a SavedModel that needs nothing of tfps."""

import gc
import json
import posixpath
from typing import Any

import keras
import tensorflow as tf

from tfps.data import examples
from tfps.errors import RunError, UserError
from tfps.experiment.task import Task
from tfps.export.loaded_model import FORMAT, SCHEMA_FILE, ExportedModel
from tfps.export.sample import Sample
from tfps.export.trained_model import trained_model
from tfps.model import inputs
from tfps.model.inputs import model_inputs
from tfps.model.predictions import predict_by_name
from tfps.model.stateless_model import StatelessModel
from tfps.storage import failures, files
from tfps.storage.paths import is_cloud
from tfps.store.parameter_store import ParameterStore

EXPORT_BEST = "export_best"  # in the job_dir: the best model that an evaluator has seen
_TRIAL = "ram://tfps/trial_export"  # TensorFlow's file system in the memory of this process


def export(
    task: Task, model: StatelessModel, store: ParameterStore, path: str, sample: Sample
) -> None:
    """Writes the model with the store's parameters, and reads it again to see that it is right.

    The SavedModel has two signatures: `serving_default` takes the features by name, each
    `[n, *shape]`, one of shape `(None,)` as two tensors (see `inputs.signature_specs`);
    `serving_examples` takes `examples`, `[n]` serialized `tf.train.Example`. The output of both is
    `predictions`, or, for a task that predicts a dict, what its keys say. `schema.json` beside it
    describes features and labels.

    Args:
        task: The task.
        model: Its model, whose parameters the store holds.
        store: The parameters.
        path: Directory to write. One that exists is replaced once the new one is whole.
        sample: What the parameters predict, which the exported model must predict as well.

    Raises:
        StorageError: If it cannot be written.
        RunError: If it predicts something else than the parameters do.
    """
    # A directory on gs:// cannot be renamed in one piece: there it is written in place, and the
    # schema, written last, makes it a model.
    temporary = path if is_cloud(path) else f"{path}.tmp"
    files.remove_tree(temporary)
    schema = _schema(task)
    try:
        _save(task, trained_model(task, model, store), temporary)
        gc.collect()  # a Keras model holds itself, and its tables are needed once more
        written = ExportedModel(temporary, tf.saved_model.load(temporary), schema)
        sample.refuse_different(written.predict)
    except (OSError, tf.errors.OpError) as error:
        raise failures.explain(error, "written", temporary) from None
    except RunError:
        files.remove_tree(temporary)
        raise
    text = json.dumps(schema, indent=1) + "\n"
    files.write(posixpath.join(temporary, SCHEMA_FILE), text.encode())
    if temporary != path:
        files.sync_tree(temporary)
        _replace(path, temporary)


def try_export(task: Task, model: StatelessModel) -> None:
    """Finds out before the training whether a model can be exported after it.

    A model without lookup tables and the like captures nothing but its variables, and there is
    nothing that a SavedModel could lack. Any other is saved as a trial, in memory, without its
    embedding tables.

    Args:
        task: The task.
        model: Its model.

    Raises:
        UserError: If it cannot be exported.
    """
    if not model.has_resources:
        return
    trial = model.build_without_tables()
    try:
        _save(task, trial, _TRIAL)
    except Exception as error:  # whatever TensorFlow says of whatever a model may hold
        reason, *_ = str(error).splitlines() or [type(error).__name__]
        raise UserError(
            f"build_model(): the model can be trained, but not exported: {reason} Keep lookup "
            "tables and variables in attributes of the model's layers"
        ) from error
    finally:
        if tf.io.gfile.exists(_TRIAL):
            tf.io.gfile.rmtree(_TRIAL)


def _save(task: Task, trained: keras.Model, path: str) -> None:
    """Writes a SavedModel of the model as it is."""
    features = task.features()

    def predict(values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = trained(model_inputs(trained, features, values), training=False)
        return predict_by_name(task, outputs)

    @tf.function(autograph=False)
    def serve_features(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        return predict(inputs.unpack_signature_inputs(values, features))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")], autograph=False)
    def serve_examples(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        return predict(examples.parse(serialized, features)[0])

    specs = inputs.signature_specs(features)
    module = tf.Module()
    module.model = trained  # with its lookup tables and the files of their vocabularies
    # A variable that is found twice would be written twice.
    found = {id(each) for each in tf.train.TrackableView(trained).descendants()}
    module.others = [each.value for each in trained.variables if id(each) not in found]
    tf.saved_model.save(
        module,
        path,
        signatures={
            "serving_default": serve_features.get_concrete_function(**specs),
            "serving_examples": serve_examples,
        },
    )


def _replace(path: str, new: str) -> None:
    """Puts a directory in another's place: two renamings, since no single one replaces it."""
    old = f"{path}.old"
    files.remove_tree(old)
    if files.exists(path):
        files.rename(path, old)
    files.rename(new, path)
    files.sync([posixpath.dirname(path)])
    files.remove_tree(old)


def _schema(task: Task) -> dict[str, Any]:
    """What `ExportedModel` reads of the model's features and labels."""
    return {
        "format": FORMAT,
        "features": [feature.schema() for feature in task.features()],
        "labels": [label.schema() for label in task.labels()],
    }
