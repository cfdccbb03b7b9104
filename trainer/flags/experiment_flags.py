"""Flags that say what to train: the config, and what they override of it."""

from typing import TYPE_CHECKING

from absl import flags

from trainer.flags import mode_flags

if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from tfps.experiment.experiment import Experiment

_FLAGS = flags.FLAGS

flags.adopt_module_key_flags(mode_flags)
flags.DEFINE_string("config", None, "Config file or module, e.g. configs/census.py.")
flags.DEFINE_multi_string("set", [], "Overrides one field of the config: train.batch_size=1024.")
flags.DEFINE_string(
    "train_data",
    None,
    "Directory of training shards, or one for each epoch as A,B,C or day-{epoch} (overrides "
    "data.train).",
)
flags.DEFINE_string("eval_data", None, "Directory of evaluation shards (overrides data.eval).")
flags.DEFINE_enum(
    "wire_dtype",
    None,
    ["float32", "bfloat16"],
    "Dtype of parameters and gradients between workers and ps (overrides train.wire_dtype).",
)
flags.DEFINE_integer(
    "max_bad_records",
    None,
    "Bad training records that may be passed over (overrides data.max_bad_records).",
    0,
)
flags.DEFINE_integer(
    "pipeline_depth",
    None,
    "Batches to pull parameters ahead for (overrides train.pipeline_depth).",
    0,
)
flags.DEFINE_bool(
    "jit_compile", None, "Compile the model's part of a step (overrides train.jit_compile)."
)
flags.DEFINE_integer(
    "early_stopping",
    None,
    "Evaluations without a better one that end the training (overrides train.early_stopping).",
    0,
)
flags.DEFINE_string(
    "init_from",
    None,
    "Job's directory, or a checkpoint's, with whose parameters and slots a new job begins "
    "(overrides train.init_from).",
)
flags.DEFINE_string(
    "init_layers",
    None,
    "Of --init_from only layers that match one of these names or patterns, as NAME,NAME (overrides "
    "train.init_layers).",
)
flags.DEFINE_enum(
    "export",
    None,
    ["last", "best", "none"],
    "Model to export at the end: of the last checkpoint, of the best evaluation, or none "
    "(overrides train.export).",
)
flags.DEFINE_enum(
    "export_dtype",
    None,
    ["float32", "bfloat16", "int8"],
    "Dtype in which the exported model keeps rows of tables (overrides train.export_dtype).",
)
flags.DEFINE_integer(
    "keep_exports",
    None,
    "Versions of the exported model that stay (overrides train.keep_exports).",
    1,
)


def experiment() -> "Experiment":
    """The config's, with what the flags override."""
    from tfps.experiment import loader, overrides

    return overrides.apply(loader.load(_FLAGS.config), overridden())


def overridden() -> list[str]:
    """What the flags override of the config, as `field=value`."""
    own = {
        "data.train": _FLAGS.train_data,
        "data.eval": _FLAGS.eval_data,
        "data.max_bad_records": _FLAGS.max_bad_records,
        **mode_flags.overridden(),
        "train.pipeline_depth": _FLAGS.pipeline_depth,
        "train.jit_compile": _FLAGS.jit_compile,
        "train.early_stopping": _FLAGS.early_stopping,
        "train.wire_dtype": _FLAGS.wire_dtype,
        "train.init_from": _FLAGS.init_from,
        "train.init_layers": _FLAGS.init_layers,
        "train.export": _FLAGS.export,
        "train.export_dtype": _FLAGS.export_dtype,
        "train.keep_exports": _FLAGS.keep_exports,
    }
    given = [f"{field}={value}" for field, value in own.items() if value is not None]
    return [*_FLAGS.set, *given]
