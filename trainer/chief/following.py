"""Follows the checkpoints of another job with ps of its own: `--job=evaluate --follow`."""

import dataclasses
import logging
import time

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.restore import read_whole, refuse_misfit
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import Executor
from tfps.errors import RunError
from tfps.experiment.experiment import Experiment
from tfps.job_dir.job_watch import JobWatch
from tfps.store.parameter_store import ParameterStore
from trainer.chief.checkpoint_evaluator import CheckpointEvaluator
from trainer.chief.data_pass import make_parameters, without_training
from trainer.chief.engine import Engine
from trainer.chief.inputs import DataUse
from trainer.chief.run_inputs import RunInputs
from trainer.chief.state import ChiefState
from trainer.console.progress_display import ProgressDisplay

_POLL_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class FollowingPlan:
    """Which job is followed.

    Attributes:
        job_dir: The directory of that job.
        wait_seconds: How long it may not run.
        lost_seconds: How long nothing may be heard of it while it runs.
    """

    job_dir: str
    wait_seconds: float
    lost_seconds: float

    @property
    def use(self) -> DataUse:
        """What the data is for."""
        return DataUse("--data")

    def experiment(self, trained: Experiment, data: str) -> Experiment:
        """An experiment of which checkpoints can be evaluated and exported.

        Args:
            trained: The experiment of the job that is followed.
            data: Directory of the evaluation data.
        """
        return without_training(trained, data, eval_data=data)

    def output(self, inputs: RunInputs) -> dict[str, int]:
        """What is written to the job_dir: next to nothing, for it goes to that of the other job.

        Args:
            inputs: Of the run, as `experiment` has them.
        """
        return {}

    def prepare(self, inputs: RunInputs, executor: Executor, state: ChiefState) -> "Following":
        """Creates the parameters, with initial values.

        Args:
            inputs: Of the run, as `experiment` has them.
            executor: Where closures run and parameters lie.
            state: What outlives this connection.

        Raises:
            LostPsError: If a ps is lost meanwhile.
        """
        ps_calls = PsCalls(state.monitor, state.limits.stall_seconds)
        engine = make_parameters(inputs, executor, state, ps_calls)
        return Following(self, engine, state, ps_calls)


class Following:
    """Evaluates checkpoints as the evaluator of a job does, where one process could not hold them.

    What it has done lies in the directory of the job that is followed, so it goes on from there
    after a loss.
    """

    def __init__(self, plan: FollowingPlan, engine: Engine, state: ChiefState, ps_calls: PsCalls):
        """Has evaluated nothing yet.

        Args:
            plan: Which job is followed.
            engine: Whose parameters are overwritten by those of its checkpoints.
            state: What outlives this connection.
            ps_calls: Makes the calls that read and write parameters.
        """
        self._plan, self._engine, self._state = plan, engine, state
        self._checkpoints = CheckpointEvaluator(engine, plan.job_dir, _read, ps_calls)
        self._watch = JobWatch(plan.job_dir, plan.wait_seconds, plan.lost_seconds)

    def run(self, display: ProgressDisplay) -> None:
        """Evaluates until the job is done and its last checkpoint evaluated, and reports.

        Args:
            display: Of what there is none but lines of the log.

        Raises:
            UserError: If a checkpoint or a shard cannot be used.
            LostPsError, WorkersChangedError: If tasks of this job are lost or come.
            RunError: If a checkpoint cannot be read, or nothing is heard of the job.
        """
        _log.info("following the checkpoints of %s", self._plan.job_dir)
        try:
            while not self._is_done():
                time.sleep(_POLL_SECONDS)
        finally:
            self._engine.stop()
        self._finish()

    def _is_done(self) -> bool:
        """Evaluates what there is; returns whether there will be no more."""
        while True:
            has_ended = self._watch.has_ended()  # asked before looking for what it wrote last
            self._state.go_on_unless_tasks_change()
            checkpoint = self._checkpoints.waiting()
            if checkpoint is None:
                return has_ended
            self._evaluate(checkpoint)

    def _evaluate(self, checkpoint: Checkpoint) -> None:
        evaluation = self._checkpoints.evaluate(checkpoint)
        if evaluation:
            self._state.observer.evaluated([evaluation])
            metric = self._engine.inputs.best_metric
            self._state.report.evaluated(self._checkpoints.all(), metric)

    def _finish(self) -> None:
        found = self._checkpoints.all()
        if not found:
            raise RunError(
                f"the job in {self._plan.job_dir} has ended without a checkpoint: nothing was "
                "evaluated; look at its report"
            )
        self._state.report.measured(found[-1].metrics, self._state.history())
        _log.info("the job is done, and its last checkpoint evaluated: %s", found[-1])


def _read(checkpoint: Checkpoint, store: ParameterStore) -> None:
    refuse_misfit(checkpoint, store.signature(), store.layout.numberings)
    read_whole(checkpoint, store)
