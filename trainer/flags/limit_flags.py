"""Flags of how long a task waits, for which other, and with what of the machine it serves."""

import os
from typing import TYPE_CHECKING

from absl import flags

from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.job_dir import size
from trainer.chief.wait_limits import Autoscale, WaitLimits

_FLAGS = flags.FLAGS
flags.DEFINE_string(
    "deploy_to",
    None,
    "Deploy the exported model at the end: flags of cloud.deploy but --model, in quotes, such as "
    "'--target=kubernetes --name=clicks'.",
)
if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from tfps.cluster.server import ServerOptions
flags.DEFINE_integer(
    "intra_op_threads", 0, "Threads within one operation; 0: TensorFlow's choice.", 0
)
flags.DEFINE_integer("inter_op_threads", 0, "Operations at once; 0: one per core.", 0)
flags.DEFINE_float("connect_seconds", 300.0, "Chief: limit for all tasks to be reachable.", 0.0)
flags.DEFINE_integer(
    "min_workers",
    0,
    "Chief: when --connect_seconds are over so many workers are enough, the others join later; 0 "
    "needs all.",
    0,
)
flags.DEFINE_string(
    "autoscale",
    None,
    "Chief: MIN:MAX workers, between which the run chooses by what each of them brings, such as "
    "2:8, or MIN:MAX,PS for up to PS ps too; where trainer.resize works.",
)
flags.DEFINE_float("autoscale_seconds", 120.0, "Chief: how long it measures each size.", 1.0)
flags.DEFINE_float(
    "task_wait_seconds",
    600.0,
    "Chief: limit for a lost task's return. A worker is then left out until it answers again, a "
    "ps ends the run. Also for the evaluator's last evaluation.",
    0.0,
)
flags.DEFINE_float("stall_seconds", 600.0, "Chief: limit for the next trained batch.", 1.0)
flags.DEFINE_float("chief_wait_seconds", 600.0, "Others: limit for the chief to appear.", 0.0)
flags.DEFINE_float("chief_lost_seconds", 60.0, "Others: limit for a lost chief's return.", 0.0)
flags.DEFINE_float(
    "grace_seconds",
    25.0,
    "Time after SIGTERM: the chief finishes its leases and saves, the others serve until then.",
    0.0,
)


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
    if cluster.job == "chief" and (limits := _autoscale()):
        _check_autoscale(limits, cluster)


def _check_autoscale(limits: Autoscale, cluster: Cluster) -> None:
    given = f"--autoscale={_FLAGS.autoscale}"
    if cluster.is_local:
        raise UserError(f"{given}, but this job is one process without workers; leave it out")
    if limits.most_ps and not cluster.ps:
        raise UserError(f"{given}, but this job has no ps; name workers alone")
    if limits.least < _FLAGS.min_workers:
        raise UserError(
            f"{given}: a run with --min_workers={_FLAGS.min_workers} cannot have fewer; begin "
            "with as many"
        )
    if size.VARIABLE not in os.environ and not (_FLAGS.dry_run or _FLAGS.preflight):
        raise UserError(
            f"{given}: what has started this run cannot change its size; cloud.local, "
            "cloud.node, --target=ssh and --target=slurm can"
        )


def _autoscale() -> Autoscale | None:
    if _FLAGS.autoscale is None:
        return None
    return Autoscale.parse(_FLAGS.autoscale, _FLAGS.autoscale_seconds)


def deploy_arguments(is_pass: bool) -> tuple[str, ...]:
    """The arguments of `cloud.deploy` apart from the model; none where nothing is deployed."""
    if not _FLAGS.deploy_to:
        return ()
    if is_pass:
        raise UserError(f"--deploy_to is for a job that trains, not --job={_FLAGS.job}")
    from cloud import deploy  # which few runs need

    return deploy.check(_FLAGS.deploy_to, _FLAGS.job_dir, here=True)


def wait_limits() -> WaitLimits:
    return WaitLimits(
        connect_seconds=_FLAGS.connect_seconds,
        min_workers=_FLAGS.min_workers,
        task_wait_seconds=_FLAGS.task_wait_seconds,
        stall_seconds=_FLAGS.stall_seconds,
        autoscale=_autoscale(),
    )


def server_options() -> "ServerOptions":
    """How every task but the chief runs its server, and waits for the chief."""
    from tfps.cluster.server import ServerOptions

    return ServerOptions(
        intra_op_threads=_FLAGS.intra_op_threads,
        inter_op_threads=_FLAGS.inter_op_threads,
        chief_wait_seconds=_FLAGS.chief_wait_seconds,
        chief_lost_seconds=_FLAGS.chief_lost_seconds,
        grace_seconds=_FLAGS.grace_seconds,
    )
