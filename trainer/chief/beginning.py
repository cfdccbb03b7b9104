"""How a training begins on connected tasks: with what its job has learnt, or another job's."""

import logging
import time

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory, OldCheckpoints, Retention
from tfps.checkpoint.restore import WarmStart, restore_newest
from tfps.checkpoint.saver import Saver
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import Executor
from tfps.evaluation.history import Evaluations
from trainer.chief.engine import Engine
from trainer.chief.run_inputs import RunInputs
from trainer.chief.run_report import RunReport
from trainer.chief.state import ChiefState
from trainer.chief.training import Training

_log = logging.getLogger(__name__)


def prepare_training(inputs: RunInputs, executor: Executor, state: ChiefState) -> Training:
    """Creates the parameters and restores the newest checkpoint."""
    stall_seconds = state.limits.stall_seconds
    ps_calls = PsCalls(state.monitor, stall_seconds)
    engine = ps_calls(
        "creating the parameters",
        lambda: Engine.build(
            inputs, executor, state.monitor, stall_seconds, sync_every=state.sync_every
        ),
        inputs.layout.ps_bytes,
    )
    directory = CheckpointDirectory(inputs.job_dir)
    saver = ps_calls("preparing to save", lambda: _saver(engine, directory, ps_calls))
    checkpoint = ps_calls(
        "restoring a checkpoint",
        lambda: _restore(engine, directory, saver, state.report),
        inputs.layout.ps_bytes,
        meanwhile=engine.trace,
    )
    return Training(engine, state, ps_calls, saver, checkpoint)


def _saver(engine: Engine, directory: CheckpointDirectory, ps_calls: PsCalls) -> Saver:
    inputs, train = engine.inputs, engine.inputs.experiment.train
    keep, hours = train.keep_checkpoints, train.keep_checkpoint_hours
    retention = Retention(keep, hours, inputs.best_metric)
    return Saver(
        directory,
        OldCheckpoints(directory, retention, Evaluations(inputs.job_dir)),
        engine.store,
        ps_calls,
        train.checkpoint_in_background,
        train.largest_increment,
        train.checkpoint_seconds / 2,
    )


def _restore(
    engine: Engine, directory: CheckpointDirectory, saver: Saver, report: RunReport
) -> Checkpoint | None:
    """Restores the newest checkpoint, after which the saver goes on; None if there is none.

    A job without any begins with what it takes of another's, if it takes anything.
    """
    directory.delete_uncommitted()
    began = time.monotonic()
    datasets = engine.inputs.data.identities()
    checkpoint, passed_over = restore_newest(directory, engine.store, datasets)
    if checkpoint is None:
        if warm_start := WarmStart.of(engine.inputs.experiment.train):
            taken = warm_start.begin(engine.store)
            report.began_from(taken.path, time.monotonic() - began)
        return None
    saver.go_on_from(checkpoint)
    trained = f"{checkpoint.queue.trained:,}"
    _log.info("resuming from %s: %s records trained", checkpoint.path, trained)
    report.restored(checkpoint.path, passed_over, time.monotonic() - began)
    return checkpoint
