"""Exports a model from a checkpoint, in one process, whatever cluster has trained it.

    python -m trainer.export --checkpoint=JOB_DIR --config=configs/census.py --output=DIR

`--checkpoint` is a job's directory, for its newest checkpoint, or `JOB_DIR/checkpoints/NAME`.
Config and overrides must be those of the job. The output is what a run exports at its end, and is
tried as there: on some records it must predict what the parameters do.
"""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import sys

from absl import flags, logging

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.failures import DamagedCheckpointError
from tfps.checkpoint.offline import named_checkpoint
from tfps.checkpoint.restore import restore
from tfps.errors import UserError
from tfps.experiment import loader, overrides
from tfps.experiment.experiment import Experiment
from tfps.export.saved_model import export
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.storage import files, preflight
from tfps.storage.failures import StorageError
from tfps.storage.preflight import Use
from tfps.store.parameter_store import ParameterStore
from trainer import entry
from trainer.chief.export_sample import predict_sample
from trainer.chief.inputs import read_data

_DEVICE = "/device:CPU:0"


def export_checkpoint(
    experiment: Experiment, checkpoint: Checkpoint, output: str, data: str = ""
) -> None:
    """Exports the model that a checkpoint holds.

    Args:
        experiment: The job's.
        checkpoint: Of parameters on any number of ps. This process needs memory for all of them,
            slots included, and for the tables once more.
        output: Directory to write; one that exists is replaced.
        data: Dataset whose first records the exported model is tried on; empty for records that
            are drawn.

    Raises:
        UserError: If the checkpoint or the dataset is another experiment's, or damaged, or the
            output cannot be written.
        RunError: If the checkpoint cannot be read, or the exported model predicts something else
            than its parameters do.
    """
    manifest = read_data(experiment.task, data, "--data") if data else None
    task, train = experiment.task, experiment.train
    model = StatelessModel(task, train.seed, train.dense_table_bytes)
    rules = Rules.of(task, model, train.row_updates)
    store = ParameterStore(model, rules, [_DEVICE], train.seed)
    try:
        restore(checkpoint, store, checkpoint.dataset)
    except DamagedCheckpointError as damage:
        raise UserError(
            f"checkpoint {checkpoint.path} is damaged: {damage}; name another with --checkpoint"
        ) from None
    try:
        export(task, model, store, output, predict_sample(task, model, store, manifest))
    except StorageError as error:
        raise UserError(f"--output={output}: {error}") from None


def main() -> None:
    """Exports what the flags name and says what it was."""
    values = flags.FLAGS
    logging.set_verbosity(logging.WARNING)  # not how TensorFlow writes a SavedModel
    preflight.check(
        [Use("--checkpoint", values.checkpoint), Use("--output", values.output, writes=True)]
    )
    if files.exists(values.output) and not values.overwrite:
        raise UserError(f"--output={values.output} exists; name another, or say --overwrite")
    experiment = overrides.apply(loader.load(values.config), values.set)
    checkpoint = named_checkpoint(values.checkpoint)
    data = values.data or experiment.data.eval or experiment.data.train
    export_checkpoint(experiment, checkpoint, values.output, data)
    sys.stdout.write(
        f"checkpoint: {checkpoint.path}, {checkpoint.queue.trained:,} records trained\n"
        f"export: {values.output}\n"
    )


def _define_flags() -> None:
    flags.DEFINE_string("checkpoint", None, "Job's directory, or a checkpoint's.", required=True)
    flags.DEFINE_string("config", None, "Config of the job.", required=True)
    flags.DEFINE_multi_string("set", [], "Override of a config's field: task.dim=8.")
    flags.DEFINE_string("output", None, "Directory to export to.", required=True)
    flags.DEFINE_string(
        "data",
        "",
        "Dataset whose first records the exported model is tried on before it counts; by default "
        "the config's evaluation or training data, or records that are drawn.",
    )
    flags.DEFINE_boolean("overwrite", False, "Replace the output.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main)
