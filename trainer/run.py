"""The chief's work, from checked inputs to a report: the trainer's composition root."""

import dataclasses
import gc
import logging
import os

import tensorflow as tf

from tfps import failures, strategy
from tfps.cluster import Cluster
from tfps.connection_guard import ConnectionGuard
from tfps.connector import Connector
from tfps.departures import Departures
from tfps.errors import LostPsError, WorkersChangedError
from tfps.fence import Fence, SupersededError
from tfps.report import FAILED, INTERRUPTED, Report
from tfps.task_watch import TaskWatch
from trainer.chief_state import ChiefState
from trainer.interruption import Interrupted, Interruption
from trainer.progress_display import ProgressDisplay
from trainer.run_inputs import RunInputs
from trainer.training import Training
from trainer.trial import Trial

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Limits of the chief's waits.

    Attributes:
        connect_seconds: For workers and ps to be reachable.
        min_workers: So many must be, 0 for all; the others join later.
        worker_wait_seconds: For a lost worker to be back before it is left out.
        again: Whether this process has started anew, to go on with other workers.
        ps_wait_seconds: For a lost ps to be back.
        stall_seconds: For the next batch, anywhere in the cluster.
        evaluator_wait_seconds: For the evaluator, if there is one, to evaluate the last checkpoint.
    """

    connect_seconds: float = 120.0
    min_workers: int = 0
    worker_wait_seconds: float = 600.0
    ps_wait_seconds: float = 600.0
    stall_seconds: float = 600.0
    evaluator_wait_seconds: float = 600.0
    again: bool = False


def run(
    inputs: RunInputs, options: RunOptions, interruption: Interruption, display: ProgressDisplay
) -> None:
    """Trains, evaluates, saves, exports and reports.

    A lost ps takes its share of the parameters with it: the run waits for it, connects anew and
    goes on from the last checkpoint.

    Args:
        inputs: What to train, on what.
        options: Limits.
        interruption: Signals that ask to stop.
        display: Where progress is shown.

    Raises:
        UserError: If what is found on the way cannot be used.
        RunError: If the run cannot go on.
        Interrupted: When a signal asks to stop.
        WorkersChangedError: If this process should start anew, to go on with other workers.
    """
    cluster = inputs.cluster
    fence = Fence(inputs.job_dir)
    report = Report(inputs.job_dir, fence, **inputs.report_fields())
    report.write()
    peers = {} if cluster.is_local else strategy.peers(cluster)
    watch, guard = TaskWatch(peers), ConnectionGuard(peers)
    connector = Connector(
        cluster, inputs.job_dir, options.connect_seconds, options.min_workers, options.again
    )
    state = ChiefState(
        connector,
        options.worker_wait_seconds,
        watch,
        report,
        fence,
        interruption,
        Departures(inputs.job_dir),
        Trial.of(os.environ),
    )
    try:
        while lost := _train(inputs, options, state, guard, display):
            display.hide()
            _recover(lost, cluster, options, state)
    except Interrupted:
        report.write(status=INTERRUPTED, **state.fields())
        raise
    except SupersededError:
        raise
    except WorkersChangedError:
        display.hide()
        report.write(**state.fields())
        raise
    except Exception as error:
        report.write(status=FAILED, error=str(error), **state.fields())
        raise
    finally:
        watch.stop()
        guard.stop()


def _train(
    inputs: RunInputs,
    options: RunOptions,
    state: ChiefState,
    guard: ConnectionGuard,
    display: ProgressDisplay,
) -> LostPsError | None:
    """Connects and trains to the end, unless a ps is lost before.

    What this connection held of the ps, variables above all, is given up when this returns.
    """
    try:
        executor = state.connector.connect()
        state.watch.start(without=state.connector.left_out)
        guard.start()
        limits = options.stall_seconds, options.evaluator_wait_seconds
        Training(inputs, executor, state, *limits).run(display)
    except LostPsError as lost:
        # Without its traceback, which holds the variables.
        return LostPsError(str(lost), lost.leaving)
    except tf.errors.OpError as error:
        # The chief's own calls of a ps, to save or to read progress, fail with TensorFlow's error.
        if found := failures.lost_ps_behind(error):
            return LostPsError(str(found))
        raise
    return None


def _recover(lost: LostPsError, cluster: Cluster, options: RunOptions, state: ChiefState) -> None:
    """Waits until every ps can be reached again."""
    gc.collect()
    state.recoveries.begin(str(lost))
    _log.warning("%s; waiting up to %.0f s for it", lost, options.ps_wait_seconds)
    state.report.write(**state.fields())
    strategy.wait_for_ps(cluster, lost.leaving, state.watch, options.ps_wait_seconds)
