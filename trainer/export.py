"""Exports a model from a checkpoint, in one process, whatever cluster has trained it.

    python -m trainer.export --checkpoint=JOB_DIR --config=configs/census.py --output=DIR

`--checkpoint` is a job's directory, for its newest checkpoint, or `JOB_DIR/checkpoints/NAME`.
Config and overrides must be those of the job. The output is what a run exports at its end, or, as
`--format` says, a file that Keras reads; and is tried as there: on some records it must predict
what the parameters do.
"""

from absl import flags

from trainer import entry
from trainer.flags import experiment_flags


def main() -> None:
    from trainer.chief import checkpoint_export  # it loads TensorFlow, which --help needs not

    checkpoint_export.run()


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_string("checkpoint", None, "Job's directory, or a checkpoint's.", required=True)
    flags.DEFINE_string("output", None, "Directory or file to export to.", required=True)
    flags.DEFINE_enum(
        "format",
        "saved_model",
        ["saved_model", "keras", "weights"],
        "saved_model: a directory for servers of TensorFlow and trainer.predict; keras: a file "
        "*.keras for keras.saving.load_model; weights: a file *.weights.h5 for load_weights.",
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
