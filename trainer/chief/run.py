"""The chief's work, from checked inputs to a report: the trainer's composition root."""

import gc
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol

import tensorflow as tf

from tfps import byte_size
from tfps.allreduce.group import LostReplicaError, ReplicaExecutor
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory, OldCheckpoints, Retention
from tfps.checkpoint.restore import WarmStart, restore_newest
from tfps.checkpoint.saver import Saver
from tfps.cluster import failures
from tfps.cluster.connection_guard import ConnectionGuard
from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import Failures, TaskMonitor
from tfps.cluster.preflight import wait_for_ps
from tfps.cluster.ps_calls import PsCalls
from tfps.cluster.spec import Cluster
from tfps.coordinator.connector import Connector
from tfps.coordinator.executor import Executor
from tfps.data.followed_data import FollowedData, position_of
from tfps.errors import LostPsError, LostWorkersError, WorkersChangedError
from tfps.evaluation.history import Evaluations
from tfps.job_dir import task_files
from tfps.job_dir.chief_fence import ChiefFence, SupersededError
from tfps.job_dir.report import FAILED, FINISHED, INTERRUPTED
from tfps.job_dir.size import Size
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import RunEvent
from tfps.storage.failures import StorageError
from tfps.worker.loop import SyncEvery
from trainer.chief import preflight
from trainer.chief.autoscaling import Autoscaling, Kind, Tried
from trainer.chief.engine import Engine
from trainer.chief.interruption import Interrupted, Interruption, has_restarted, restart_process
from trainer.chief.monitoring import Monitoring, log_bound, past_of
from trainer.chief.observer import RunObserver
from trainer.chief.resizing import ResizedError, Resizing
from trainer.chief.run_inputs import RunInputs, RunSettings
from trainer.chief.run_report import RunReport
from trainer.chief.state import ChiefState, RestartState, Trial
from trainer.chief.training import Training
from trainer.chief.wait_limits import WaitLimits
from trainer.console.terminal import ProgressDisplay

_log = logging.getLogger(__name__)


def prepare_training(inputs: RunInputs, executor: Executor, state: ChiefState) -> Training:
    """Creates the parameters and restores the newest checkpoint."""
    stall_seconds, began = state.limits.stall_seconds, time.monotonic()
    layout, ps = inputs.plan.layout, len(inputs.settings.cluster.ps)
    size = byte_size.show(layout.ps_bytes) + (f" on each of {ps} ps" if ps > 1 else "")
    _log.info("creating the parameters: %d tables, %s", len(inputs.plan.model.tables), size)
    ps_calls = PsCalls(state.monitor, stall_seconds)
    engine = ps_calls(
        "creating the parameters",
        lambda: Engine.build(
            inputs, executor, state.monitor, stall_seconds, sync_every=state.sync_every
        ),
        inputs.plan.layout.ps_bytes,
    )
    directory = CheckpointDirectory(inputs.settings.job_dir)
    saver = ps_calls("preparing to save", lambda: _saver(engine, directory, ps_calls))
    checkpoint = ps_calls(
        "restoring a checkpoint",
        lambda: _restore(engine, directory, saver, state.report),
        inputs.plan.layout.ps_bytes,
        meanwhile=lambda: _trace(engine),
    )
    _log.info("ready to train after %.1f s", time.monotonic() - began)
    return Training(engine, state, ps_calls, saver, checkpoint)


def _trace(engine: Engine) -> None:
    _log.info("tracing the training step")
    engine.trace()


def _saver(engine: Engine, directory: CheckpointDirectory, ps_calls: PsCalls) -> Saver:
    inputs, train = engine.inputs, engine.inputs.settings.experiment.train
    keep, hours = train.keep_checkpoints, train.keep_checkpoint_hours
    retention = Retention(keep, hours, inputs.plan.best_metric)
    return Saver(
        directory,
        OldCheckpoints(directory, retention, Evaluations(inputs.settings.job_dir)),
        engine.store,
        ps_calls,
        train.checkpoint_in_background,
        train.largest_increment,
        train.checkpoint_seconds / 2,
    )


def _restore(
    engine: Engine, directory: CheckpointDirectory, saver: Saver, report: RunReport
) -> Checkpoint | None:
    """Restores the newest checkpoint, or what a new job takes of another's; None for none."""
    directory.delete_uncommitted()
    began = time.monotonic()
    datasets = engine.inputs.data.train.identities()
    checkpoint, passed_over = restore_newest(directory, engine.store, datasets)
    if isinstance(data := engine.inputs.data.train, FollowedData):
        data.resume(position_of(checkpoint.datasets) if checkpoint else None)
    if checkpoint is None:
        if warm_start := WarmStart.of(engine.inputs.settings.experiment.train):
            taken = warm_start.begin(engine.store)
            seconds = round(time.monotonic() - began, 3)
            report.update(init_from=taken.path, restore_seconds=seconds)
        return None
    saver.resume_from(checkpoint)
    trained = f"{checkpoint.queue.trained:,}"
    _log.info("resuming from %s: %s records trained", checkpoint.path, trained)
    seconds = round(time.monotonic() - began, 3)
    report.update(resumed_from=checkpoint.path, passed_over=passed_over, restore_seconds=seconds)
    return checkpoint


class Work(Protocol):
    """What a chief does while it is connected."""

    def run(self, display: ProgressDisplay) -> None:
        """Does what is left of it, and reports."""


Prepare = Callable[[RunInputs, Executor, ChiefState], Work]


def join(cluster: Cluster, limits: WaitLimits, hint: str) -> ReplicaExecutor:
    """Meets all replicas of a cluster without ps, before TensorFlow is used for anything."""
    restart_state = RestartState.load()
    is_recovering = bool(restart_state.recoveries.made)
    limit = limits.task_wait_seconds if is_recovering else limits.connect_seconds
    _log.info("waiting for %d other replicas", len(cluster.workers))
    try:
        executor = ReplicaExecutor.join(cluster, limit, hint)
    except LostReplicaError as lost:
        restart_state.recoveries.begin(str(lost))
        _begin_again(lost, restart_state)
    _log.info("together with %d other replicas", len(cluster.workers))
    return executor


def run(
    inputs: RunInputs,
    limits: WaitLimits,
    interruption: Interruption,
    display: ProgressDisplay,
    monitoring: Monitoring,
    replica: ReplicaExecutor | None = None,
    prepare: Prepare = prepare_training,
) -> None:
    """Trains, evaluates, saves, exports and reports; or makes a pass over a dataset.

    After a lost ps, the run waits for it, connects again and resumes from the last checkpoint.
    Other losses restart this process, and this does not return: a replica without ps, a worker lost
    for good or joining late, and a loss of ps after several others.
    """
    state = _begin(inputs, limits, interruption, monitoring)
    try:
        with interruption.recognized():
            while lost := _work(inputs, state, display, replica, prepare):
                display.hide()
                state.observer.look_for_losses(state.monitor.failures)
                _prepare_to_go_on(lost, inputs.settings.cluster, state)
    except Interrupted:
        report_end(state, INTERRUPTED)
        raise
    except ResizedError:  # the report goes on: so does the run
        state.observer.ended(INTERRUPTED)
        raise
    except SupersededError:
        raise
    except Exception as error:
        report_end(state, FAILED, str(error))
        raise
    else:
        state.observer.ended(FINISHED)
    finally:
        state.monitor.stop()
        state.observer.close()
    if inputs.settings.cluster.ps:
        log_bound(inputs.settings.job_dir)


def report_end(state: ChiefState, status: str, error: str | None = None) -> None:
    """Says that the run has ended before it was done."""
    try:
        state.update_report(status=status, error=error)
    except StorageError as failure:  # the end's reason matters more
        _log.warning("the report does not tell of the end: %s", failure)
    state.observer.look_for_losses(state.monitor.failures)
    state.observer.ended(status, error)


def _begin(
    inputs: RunInputs, limits: WaitLimits, interruption: Interruption, monitoring: Monitoring
) -> ChiefState:
    """Takes the job_dir over, writes the first report, and makes what the run keeps."""
    settings, data, plan = inputs
    cluster, job_dir = settings.cluster, settings.job_dir
    peers = {} if cluster.is_local else cluster.peers()
    before = RestartState.load()
    # Replicas need no guard: TensorFlow notices a silent one, and ends what waits for it.
    guard = None if cluster.is_replicated else ConnectionGuard(peers)
    connector = Connector(
        cluster,
        job_dir,
        limits.connect_seconds,
        limits.min_workers,
        has_restarted(),
        preflight.task_memory(inputs),
    )
    known = Failures(before.failures, before.failures_by_job)
    monitor = TaskMonitor(peers, guard, failures=known)
    past = past_of(job_dir)
    observer = monitoring.observe(
        settings, data.train, lambda: _states(peers, connector, monitor), past
    )
    leaving = "worker" if cluster.is_replicated else "ps"  # the tasks that say so
    fence = ChiefFence.take_over(job_dir)
    task_files.write(job_dir, monitoring.traced_at(cluster))
    report = RunReport.begin(inputs, fence)
    observer.began(settings, plan.layout, monitoring.overrides)
    return ChiefState(
        limits=limits,
        connector=connector,
        monitor=monitor,
        report=report,
        fence=fence,
        interruption=interruption,
        notices=PreemptionNotices(job_dir, {task for task in peers if task.job == leaving}),
        resizing=Resizing(
            job_dir, cluster, limits.min_workers, _autoscaling(settings, limits, observer, past)
        ),
        observer=observer,
        sync_every=SyncEvery(report.sync_every, lambda steps: report.update(sync_every=steps)),
        trial=Trial.of(os.environ),
        restart=before,
    )


def _autoscaling(
    settings: RunSettings, limits: WaitLimits, observer: RunObserver, past: Iterable[RunEvent]
) -> Autoscaling | None:
    if limits.autoscale is None:
        return None
    cluster, batch_size = settings.cluster, settings.experiment.train.batch_size
    now = Size(len(cluster.workers) - cluster.chief_works, len(cluster.ps))
    tried = Tried.of(past, Kind(settings.mode.name, str(batch_size)), now)
    others = int(cluster.chief_works or not cluster.ps)
    return Autoscaling(limits.autoscale, now, tried, observer.measured, others)


def _states(
    peers: Iterable[TaskName], connector: Connector, monitor: TaskMonitor
) -> dict[TaskName, str]:
    """What state each worker and ps is in now."""
    lost = {outage.task for outage in monitor.outages()}
    left_out = set(connector.left_out)
    return {
        task: "left_out" if task in left_out else "lost" if task in lost else "up" for task in peers
    }


def _work(
    inputs: RunInputs,
    state: ChiefState,
    display: ProgressDisplay,
    replica: ReplicaExecutor | None,
    prepare: Prepare,
) -> LostPsError | LostReplicaError | LostWorkersError | WorkersChangedError | None:
    """Connects and works to the end, or until tasks change; frees its variables on return."""
    try:
        executor = replica or state.connector.connect()
        state.update_report()
        state.monitor.start(without=state.connector.left_out)
        work = prepare(inputs, executor, state)
        if not has_restarted():
            state.resizing.began()
        work.run(display)
    except LostPsError as lost:
        # Without its traceback, which holds the variables.
        return LostPsError(str(lost), lost.leaving)
    except (LostReplicaError, LostWorkersError, WorkersChangedError) as changed:
        return type(changed)(str(changed))
    except tf.errors.OpError as error:
        # The chief's own calls of a ps, to save or to read progress, fail with TensorFlow's error.
        if found := failures.lost_ps_behind(error):
            return LostPsError(str(found))
        raise
    return None


def _prepare_to_go_on(lost: Exception, cluster: Cluster, state: ChiefState) -> None:
    """Gets this process ready for another connection, or begins it again if it can have no more."""
    if isinstance(lost, LostPsError) and not cluster.is_replicated:
        _recover(lost, cluster, state)
        if not state.connector.is_used_up:
            return
    else:
        state.interruption.raise_if_requested()
        if isinstance(lost, WorkersChangedError):
            state.restart.changes.begin()
        else:
            state.restart.recoveries.begin(str(lost))
        state.update_report()
    state.observer.close()
    state.monitor.stop()  # else the program that comes has a child that it does not know
    _begin_again(lost, state.restart_state())


def _recover(lost: LostPsError, cluster: Cluster, state: ChiefState) -> None:
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
        state.restart.recoveries.begin(str(lost))
        limit = state.limits.task_wait_seconds
        _log.warning("%s; waiting up to %.0f s for it", lost, limit)
        state.update_report()
        wait_for_ps(cluster, lost.leaving, state.monitor, limit)
    finally:
        gc.enable()
    if not are_gone:
        gc.collect()


def _begin_again(lost: Exception, restart_state: RestartState) -> NoReturn:
    """Begins this process again, with what is known of the run."""
    _log.warning("%s; beginning again, from the last checkpoint", lost)
    restart_state.save()
    restart_process()
