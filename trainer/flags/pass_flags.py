"""Flags of a job that makes one pass over a dataset with the parameters of a checkpoint."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from absl import flags

from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.storage.paths import canonical

if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from tfps.experiment.experiment import Experiment
    from trainer.chief.data_pass import PassPlan
    from trainer.chief.run import Prepare
    from trainer.chief.run_inputs import DataUse, RunInputs

TRAIN, EVALUATE, PREDICT = JOBS = ("train", "evaluate", "predict")
_FLAGS = flags.FLAGS
_OF_PREDICT = ("keep", "output_form", "batch_size")
_OWN = ("checkpoint", "data", *_OF_PREDICT)

flags.DEFINE_enum(
    "job", TRAIN, JOBS, "What the cluster does: train, or one pass over --data with a checkpoint."
)
flags.DEFINE_string(
    "checkpoint", None, "--job=evaluate, predict: a job's directory, or a checkpoint's."
)
flags.DEFINE_string("data", None, "--job=evaluate, predict: directory of the dataset.")
flags.DEFINE_list("keep", [], "--job=predict: features to copy beside the predictions.")
flags.DEFINE_enum(
    "output_form", "parquet", ["csv", "parquet", "tfrecord"], "--job=predict: form of the files."
)
flags.DEFINE_integer(
    "batch_size", 4096, "--job=predict: records per call of the model.", lower_bound=1
)


class Work(NamedTuple):
    experiment: "Experiment"
    prepare: "Prepare"
    use: "DataUse"
    output: "Callable[[RunInputs], Mapping[str, int] | None]"  # None of a training


def work(experiment: "Experiment", is_pass: bool) -> Work:
    """What the flags ask of the chief."""
    from trainer.chief.run import prepare_training
    from trainer.chief.run_inputs import TRAINED

    if not is_pass:
        return Work(experiment, prepare_training, TRAINED, lambda inputs: None)
    made = plan()
    own = made.experiment(experiment, _FLAGS.data)
    return Work(own, made.prepare, made.use, made.output)


def is_pass(cluster: Cluster, job_dir: str) -> bool:
    if _FLAGS.job == TRAIN:
        given = [name for name in _OWN if _FLAGS[name].present]
        if given:
            is_size = given[0] == "batch_size"
            fix = "a training has --train.batch_size" if is_size else "leave it out"
            raise UserError(f"--{given[0]} is for --job={EVALUATE} or {PREDICT}; {fix}")
        return False
    for name in _OF_PREDICT:
        if _FLAGS.job != PREDICT and _FLAGS[name].present:
            raise UserError(f"--{name} is for --job={PREDICT}; leave it out")
    for name in ("checkpoint", "data"):
        if not _FLAGS[name].value:
            raise UserError(f"--job={_FLAGS.job} without --{name}: name it")
    if _FLAGS.autoscale is not None:
        raise UserError(f"--autoscale is for --job={TRAIN}; leave it out")
    if cluster.is_replicated or cluster.evaluators:
        raise UserError(
            f"--job={_FLAGS.job} needs a cluster with ps and no evaluator, or no cluster at all"
        )
    job_dir = job_dir.rstrip("/")
    if f"{canonical(_FLAGS.checkpoint)}/".startswith(f"{canonical(job_dir)}/"):
        raise UserError(
            f"--job_dir={job_dir} is that of --checkpoint={_FLAGS.checkpoint}: a pass is a job of "
            "its own, name another --job_dir"
        )
    return True


def plan() -> "PassPlan":
    from tfps.checkpoint.saved_values import named_checkpoint
    from trainer.chief.data_pass import PassPlan

    checkpoint = named_checkpoint(_FLAGS.checkpoint)
    if _FLAGS.job == EVALUATE:
        return PassPlan(checkpoint)
    return PassPlan(checkpoint, _FLAGS.output_form, tuple(_FLAGS.keep), _FLAGS.batch_size)
