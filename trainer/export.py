"""Exports a model from a checkpoint, in one process, whatever cluster has trained it.

    python -m trainer.export --checkpoint=JOB_DIR --config=configs/census.py --output=DIR

`--checkpoint` is a job's directory, for its newest checkpoint, or `JOB_DIR/checkpoints/NAME`.
Config and overrides must be those of the job. The output is what a run exports at its end, or, as
`--format` says, a file that Keras reads; and is tried as there: on some records it must predict
what the parameters do.
"""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import sys

from absl import flags, logging

from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError
from tfps.checkpoint.saved_values import named_checkpoint
from tfps.data.manifest import directories
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
from trainer import entry
from trainer.chief.exports import DtypeCost, predict_sample
from trainer.chief.run_inputs import DataUse, read_data
from trainer.flags import experiment_flags

SAVED_MODEL = "saved_model"
_SUFFIXES = {"keras": MODEL, "weights": WEIGHTS}


def export_checkpoint(
    experiment: Experiment,
    checkpoint: Checkpoint,
    output: str,
    data: str = "",
    form: str = SAVED_MODEL,
    part: str = "",
    dtype: str = FLOAT32,
) -> DtypeCost | None:
    """Exports a checkpoint's model; returns what the dtype costs and saves, None for float32.

    The checkpoint may be of any number of ps. This process gets to hold the dense parameters and
    small tables; for a file of Keras's all tables, without slots. The exported model is tried on
    the first records of `data`, or on drawn ones. `part` names a model within the model, for a file
    of Keras's.
    """
    manifest = read_data(experiment.task, data, DataUse("--data")) if data else None
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


def main() -> None:
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
    data = values.data or experiment.data.eval
    if not data:
        data = directories(experiment.data.train, experiment.train.epochs)[0]
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


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_string("checkpoint", None, "Job's directory, or a checkpoint's.", required=True)
    flags.DEFINE_string("output", None, "Directory or file to export to.", required=True)
    flags.DEFINE_enum(
        "format",
        SAVED_MODEL,
        [SAVED_MODEL, *_SUFFIXES],
        f"{SAVED_MODEL}: a directory for servers of TensorFlow and trainer.predict; keras: a file "
        f"*{MODEL} for keras.saving.load_model; weights: a file *{WEIGHTS} for load_weights.",
    )
    flags.DEFINE_string(
        "submodel", "", "Name of a model within the model, such as a tower, to export alone."
    )
    flags.DEFINE_string(
        "data",
        "",
        "Dataset whose first records the exported model is tried on before it counts; by default "
        "the config's evaluation or training data, or records that are drawn.",
    )
    flags.DEFINE_boolean("overwrite", False, "Replace the output.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
