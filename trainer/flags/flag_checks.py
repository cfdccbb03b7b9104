"""Refuses flags that do not go with the task that they are given to."""

import os

from absl import flags

from tfps.cluster.spec import Cluster
from tfps.errors import UserError

_FLAGS = flags.FLAGS


def check(cluster: Cluster) -> None:
    """Looks at flags, and at what of the environment stands for one, before anything is done."""
    if not _FLAGS.config:
        raise UserError("--config is missing")
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        backend = os.environ["KERAS_BACKEND"]
        raise UserError(f"KERAS_BACKEND={backend}: parameter servers need tensorflow; unset it")
    if cluster.job == "evaluator" and cluster.is_local:
        raise UserError(
            "this task is the evaluator of a job without workers and ps, which evaluates in its "
            "one process: leave the evaluator out of the job"
        )
    if _FLAGS.inter_op_threads == 1 and not cluster.is_local:
        raise UserError(
            "--inter_op_threads=1: a task of a cluster needs 2 or more, since one waits while a "
            "closure runs; give 0 for one per core, but no less than 4"
        )
    if _FLAGS.collectives != "auto" and not cluster.is_replicated:
        raise UserError(
            f"--collectives={_FLAGS.collectives} is for replicas without ps "
            "(--mode.name=allreduce), and this task is of no such job; leave it out"
        )
    if _FLAGS.min_workers > max(1, len(cluster.workers)):
        raise UserError(
            f"--min_workers={_FLAGS.min_workers}, but there are {len(cluster.workers)} workers; "
            "ask for no more"
        )
