"""The chief's work, from checked inputs to a report: the trainer's composition root."""

import dataclasses
import logging

import tensorflow as tf

from tfps import failures, strategy
from tfps.cluster import Cluster
from tfps.executor import Executor, LocalExecutor
from tfps.report import FAILED, INTERRUPTED, Report
from tfps.task_watch import TaskWatch
from trainer.progress_display import ProgressDisplay
from trainer.run_inputs import RunInputs
from trainer.training import Training

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Limits of the chief's waits.

    Attributes:
        connect_seconds: For workers and ps to be reachable at the start.
        stall_seconds: For the next batch, anywhere in the cluster.
    """

    connect_seconds: float = 120.0
    stall_seconds: float = 600.0


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived.

    Attributes:
        signal: Its number.
    """

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


def run(inputs: RunInputs, options: RunOptions, display: ProgressDisplay) -> None:
    """Trains, evaluates, saves, exports and reports.

    Args:
        inputs: What to train, on what.
        options: Limits.
        display: Where progress is shown.

    Raises:
        UserError: If what is found on the way cannot be used.
        RunError: If the run cannot go on.
        Interrupted: When a signal asks to stop.
    """
    cluster = inputs.cluster
    watch = TaskWatch({} if cluster.is_local else strategy.peers(cluster))
    report = Report(inputs.job_dir, **inputs.report_fields())
    report.write()
    try:
        executor = _connect(cluster, options.connect_seconds)
        watch.start()
        Training(inputs, executor, watch, report, options.stall_seconds).run(display)
    except Interrupted:
        report.write(status=INTERRUPTED)
        raise
    except Exception as error:
        # The chief's own calls of a ps, to save or to read progress, fail with TensorFlow's error.
        lost = failures.lost_ps_behind(error) if isinstance(error, tf.errors.OpError) else None
        seen = [dataclasses.asdict(failure) for failure in watch.failures]
        report.write(status=FAILED, error=str(lost or error), failures=seen)
        if lost:
            raise lost from None
        raise
    finally:
        watch.stop()


def _connect(cluster: Cluster, limit_seconds: float) -> Executor:
    if cluster.is_local:
        return LocalExecutor()
    workers, ps = len(cluster.workers), len(cluster.ps)
    _log.info("waiting for %d workers and %d ps", workers, ps)
    executor = strategy.connect(cluster, limit_seconds)
    _log.info("connected to %d workers and %d ps", workers, ps)
    return executor
