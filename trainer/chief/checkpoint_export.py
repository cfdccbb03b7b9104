"""Exports the model of a checkpoint: what `trainer.export` does."""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import sys

from absl import flags, logging

from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError
from tfps.checkpoint.saved_values import named_checkpoint
from tfps.data.training_data import directories
from tfps.errors import UserError
from tfps.experiment.experiment import FLOAT32, Experiment
from tfps.export.keras_file import MODEL, WEIGHTS, export_keras
from tfps.export.parameters import CheckpointParameters
from tfps.export.saved_model import ExportForm, export
from tfps.export.sliced_variables import RowEncoding
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.storage import files, objects
from tfps.storage.failures import StorageError
from tfps.storage.objects import Use
from trainer.chief.exports import DtypeCost, predict_sample
from trainer.chief.run_inputs import DataUse, read_data
from trainer.flags import experiment_flags

SAVED_MODEL = "saved_model"
_SUFFIXES = {"keras": MODEL, "weights": WEIGHTS}


def export_checkpoint(
    experiment: Experiment,
    checkpoint: Checkpoint,
    output: str,
    data: tuple[str, str] = ("", ""),
    form: str = SAVED_MODEL,
    part: str = "",
    dtype: str = FLOAT32,
) -> DtypeCost | None:
    """Exports a checkpoint's model; returns what the dtype costs and saves, None for float32.

    The checkpoint may be of any number of ps. This process gets to hold the dense parameters and
    small tables; for a file of Keras's all tables, without slots. The exported model is tried on
    the first records of `data`, or on drawn ones. `part` names a model within the model, for a file
    of Keras's. `data` is a flag, or field, and the dataset that it names.
    """
    flag, named = data
    manifest = read_data(experiment.task, named, DataUse(flag)) if named else None
    task, train = experiment.task, experiment.train
    model = StatelessModel(task, train.seed, train.dense_table_bytes)
    rules = Rules.of(task, model, train.row_updates)
    try:
        parameters = CheckpointParameters(checkpoint, model, rules)
        encoding = RowEncoding(dtype)
        sample = predict_sample(task, parameters, manifest, not encoding.is_exact)
        if form != SAVED_MODEL:
            export_keras(task, model, parameters, output, sample, part)
            return None
        predictions = export(task, parameters, output, sample, ExportForm(encoding))
    except DamagedCheckpointError as damage:
        raise UserError(
            f"checkpoint {checkpoint.path} is damaged: {damage}; name another with --checkpoint"
        ) from None
    except StorageError as error:
        raise UserError(f"--output={output}: {error}") from None
    if encoding.is_exact:
        return None
    return DtypeCost.of(task, parameters.layout, encoding, sample, predictions)


def run() -> None:
    values = flags.FLAGS
    logging.set_verbosity(logging.WARNING)  # not how TensorFlow writes a SavedModel
    objects.check(
        [Use("--checkpoint", values.checkpoint), Use("--output", values.output, writes=True)]
    )
    if files.exists(values.output) and not values.overwrite:
        raise UserError(f"--output={values.output} exists; name another, or say --overwrite")
    experiment = experiment_flags.experiment()
    dtype = experiment.train.export_dtype
    _refuse_misfits(values.output, values.format, values.submodel, dtype)
    checkpoint = named_checkpoint(values.checkpoint)
    data = ("--data", values.data) if values.data else ("--data.eval", experiment.data.eval)
    if not data[1] and not experiment.data.follow_seconds:
        data = "--data.train", directories(experiment.data.train, experiment.train.epochs)[0]
    cost = export_checkpoint(
        experiment,
        checkpoint,
        values.output,
        data,
        values.format,
        values.submodel,
        dtype,
    )
    sys.stdout.write(
        f"checkpoint: {checkpoint.path}, {checkpoint.queue.trained:,} records trained\n"
        f"export: {values.output}\n"
    )
    if cost:
        sys.stdout.write(f"{cost}\n")


def _refuse_misfits(output: str, form: str, part: str, dtype: str) -> None:
    suffix = _SUFFIXES.get(form, "")
    if suffix and dtype != FLOAT32:
        raise UserError(
            f"train.export_dtype={dtype} is for --format={SAVED_MODEL}: a file of Keras's keeps "
            f"the dtype of the model's variables; add --train.export_dtype={FLOAT32}"
        )
    if not output.endswith(suffix):
        raise UserError(
            f"--format={form} writes a file whose name ends in {suffix}: name another --output "
            f"than {output}"
        )
    if part and not suffix:
        raise UserError(
            f"--submodel={part} is for --format={' or '.join(_SUFFIXES)}: a SavedModel has the "
            "signatures of the whole model"
        )
