"""Flags of how long a task waits, for which other, and with what of the machine it serves."""

from typing import TYPE_CHECKING

from absl import flags

from trainer.chief.wait_limits import WaitLimits

if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from tfps.cluster.server import ServerOptions

_FLAGS = flags.FLAGS

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
flags.DEFINE_float(
    "worker_wait_seconds",
    600.0,
    "Chief: a worker that is lost for so long is left out until it answers again.",
    0.0,
)
flags.DEFINE_float("ps_wait_seconds", 600.0, "Chief: limit for a lost ps's return.", 0.0)
flags.DEFINE_float("stall_seconds", 600.0, "Chief: limit for the next trained batch.", 1.0)
flags.DEFINE_float(
    "evaluator_wait_seconds",
    600.0,
    "Chief: limit for the evaluator, if there is one, to evaluate the last checkpoint.",
    0.0,
)
flags.DEFINE_float("chief_wait_seconds", 600.0, "Others: limit for the chief to appear.", 0.0)
flags.DEFINE_float("chief_lost_seconds", 60.0, "Others: limit for a lost chief's return.", 0.0)
flags.DEFINE_float(
    "grace_seconds",
    25.0,
    "Time after SIGTERM: the chief finishes its leases and saves, the others serve until then.",
    0.0,
)


def wait_limits() -> WaitLimits:
    """The limits of the chief's waits."""
    return WaitLimits(
        connect_seconds=_FLAGS.connect_seconds,
        min_workers=_FLAGS.min_workers,
        worker_wait_seconds=_FLAGS.worker_wait_seconds,
        ps_wait_seconds=_FLAGS.ps_wait_seconds,
        stall_seconds=_FLAGS.stall_seconds,
        evaluator_wait_seconds=_FLAGS.evaluator_wait_seconds,
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
