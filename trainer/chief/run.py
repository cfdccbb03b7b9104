"""The chief's work, from checked inputs to a report: the trainer's composition root."""

import dataclasses
import gc
import logging
import os
from typing import Any, NoReturn

import tensorflow as tf

from tfps.allreduce.executor import ReplicaExecutor
from tfps.allreduce.group import LostReplicaError
from tfps.cluster import failures
from tfps.cluster.connection_guard import ConnectionGuard
from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import Failures, TaskMonitor
from tfps.cluster.peers import wait_for_ps
from tfps.cluster.spec import Cluster
from tfps.coordinator.connector import Connector
from tfps.errors import LostPsError, UserError, WorkersChangedError
from tfps.job_dir.chief_fence import ChiefFence, SupersededError
from tfps.job_dir.preemption import PreemptionNotices
from tfps.job_dir.report import FAILED, INTERRUPTED, Report, read, reopen
from tfps.storage.failures import StorageError
from trainer.chief.handover import RestartState
from trainer.chief.interruption import Interrupted, Interruption
from trainer.chief.restart import restart_process
from trainer.chief.run_inputs import RunInputs
from trainer.chief.state import ChiefState
from trainer.chief.training import Training
from trainer.chief.trial import Trial
from trainer.console.progress_display import ProgressDisplay

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


def join(cluster: Cluster, job_dir: str, options: RunOptions) -> ReplicaExecutor:
    """Meets all other replicas of a cluster without ps; before TensorFlow is used for anything.

    A replica that is lost meanwhile makes this process begin anew.

    Args:
        cluster: The cluster, as its chief sees it.
        job_dir: Where the other replicas look whether this chief is done.
        options: Limits.

    Raises:
        UserError: If a replica does not answer in time, or the chief's own port is taken.
        RunError: If all answer, but do not come together in time, or replicas are lost again and
            again.
    """
    reopen(job_dir)
    restart_state = RestartState.found()
    is_recovering = bool(restart_state.recoveries.report())
    limit = options.ps_wait_seconds if is_recovering else options.connect_seconds
    _log.info("waiting for %d other replicas", len(cluster.workers))
    try:
        executor = ReplicaExecutor.join(cluster, limit)
    except LostReplicaError as lost:
        restart_state.recoveries.begin(str(lost))
        _begin_again(lost, restart_state)
    _log.info("together with %d other replicas", len(cluster.workers))
    return executor


def run(
    inputs: RunInputs,
    options: RunOptions,
    interruption: Interruption,
    display: ProgressDisplay,
    replica: ReplicaExecutor | None = None,
) -> None:
    """Trains, evaluates, saves, exports and reports.

    A lost ps takes its share of the parameters with it: the run waits for it, connects anew and
    goes on from the last checkpoint. Some other losses have this process begin anew, and it does
    not return from here: that of a replica where there are no ps, that of a worker for good and the
    arrival of one that was left out, and a loss of ps after several others.

    Args:
        inputs: What to train, on what.
        options: Limits.
        interruption: Signals that ask to stop.
        display: Where progress is shown.
        replica: What `join` returned, in a cluster without ps.

    Raises:
        UserError: If what is found on the way cannot be used.
        RunError: If the run cannot go on.
        Interrupted: When a signal asks to stop.
    """
    cluster = inputs.cluster
    fence = ChiefFence(inputs.job_dir)
    report = Report(inputs.job_dir, fence, **inputs.report_fields(_last_report(inputs.job_dir)))
    report.write()
    peers = {} if cluster.is_local else cluster.peers()
    restart_state = RestartState.found()
    failures = Failures(restart_state.failures, restart_state.failures_by_job)
    # Replicas need no guard: TensorFlow notices a silent one, and ends what waits for it.
    guard = None if cluster.is_replicated else ConnectionGuard(peers)
    monitor = TaskMonitor(peers, guard, failures=failures)
    connector = Connector(
        cluster, inputs.job_dir, options.connect_seconds, options.min_workers, options.again
    )
    state = ChiefState(
        connector,
        options.worker_wait_seconds,
        monitor,
        report,
        fence,
        interruption,
        PreemptionNotices(inputs.job_dir),
        Trial.of(os.environ),
        restart_state.recoveries,
        restart_state.began,
        restart_state.changes,
    )
    try:
        while lost := _train(inputs, options, state, display, replica):
            display.hide()
            _prepare_to_go_on(lost, cluster, options, state)
    except Interrupted:
        _tell_of_end(report, status=INTERRUPTED, **state.fields())
        raise
    except SupersededError:
        raise
    except Exception as error:
        _tell_of_end(report, status=FAILED, error=str(error), **state.fields())
        raise
    finally:
        monitor.stop()


def _tell_of_end(report: Report, **fields: Any) -> None:
    """Writes the report of a run that ends for a reason of its own, which is the one to show."""
    try:
        report.write(**fields)
    except StorageError as error:
        _log.warning("the report does not tell of the end: %s", error)


def _last_report(job_dir: str) -> dict[str, Any] | None:
    """The report of the job's last run; None where there is none that can be used."""
    try:
        return read(job_dir)
    except UserError as error:
        _log.warning("the report is written anew: %s", error)
        return None


def _train(
    inputs: RunInputs,
    options: RunOptions,
    state: ChiefState,
    display: ProgressDisplay,
    replica: ReplicaExecutor | None,
) -> LostPsError | LostReplicaError | WorkersChangedError | None:
    """Connects and trains to the end, unless tasks are lost or workers change before.

    What this connection held of the ps, variables above all, is given up when this returns.
    """
    try:
        executor = replica or state.connector.connect()
        state.report.write(**state.fields())
        state.monitor.start(without=state.connector.left_out)
        limits = options.stall_seconds, options.evaluator_wait_seconds
        Training(inputs, executor, state, *limits).run(display)
    except LostPsError as lost:
        # Without its traceback, which holds the variables.
        return LostPsError(str(lost), lost.leaving)
    except LostReplicaError as lost:
        return LostReplicaError(str(lost))
    except WorkersChangedError as changed:
        return WorkersChangedError(str(changed))
    except tf.errors.OpError as error:
        # The chief's own calls of a ps, to save or to read progress, fail with TensorFlow's error.
        if found := failures.lost_ps_behind(error):
            return LostPsError(str(found))
        raise
    return None


def _prepare_to_go_on(
    lost: Exception, cluster: Cluster, options: RunOptions, state: ChiefState
) -> None:
    """Gets this process ready for another connection, or begins it anew if it can have no more."""
    if isinstance(lost, LostPsError) and not cluster.is_replicated:
        _recover(lost, cluster, options, state)
        if not state.connector.is_used_up:
            return
    else:
        state.interruption.raise_if_requested()
        if isinstance(lost, WorkersChangedError):
            state.changes.begin()
        else:
            state.recoveries.begin(str(lost))
        state.report.write(**state.fields())
    failures = state.monitor.failures
    found = RestartState(state.recoveries, failures, state.began, failures.by_job, state.changes)
    _begin_again(lost, found)


def _recover(lost: LostPsError, cluster: Cluster, options: RunOptions, state: ChiefState) -> None:
    """Waits until every ps can be reached again, and frees what was held of them.

    TensorFlow tells every task of each function that is freed, with Python's lock held until all
    have heard. So that is done at once where every lost task refuses connections; one that was
    stopped would take 20 s of the wait, and is waited for first.
    """
    seen = {outage.liveness for outage in state.monitor.outages()}
    if are_gone := seen <= {Liveness.REFUSES}:
        gc.collect()
    gc.disable()
    try:
        state.recoveries.begin(str(lost))
        _log.warning("%s; waiting up to %.0f s for it", lost, options.ps_wait_seconds)
        state.report.write(**state.fields())
        wait_for_ps(cluster, lost.leaving, state.monitor, options.ps_wait_seconds)
    finally:
        gc.enable()
    if not are_gone:
        gc.collect()


def _begin_again(lost: Exception, restart_state: RestartState) -> NoReturn:
    """Begins this process anew, with what is known of the run."""
    _log.warning("%s; beginning anew, from the last checkpoint", lost)
    restart_state.leave()
    restart_process()
