"""The evaluator's work: it follows a job's checkpoints and evaluates them in its own process."""

import concurrent.futures
import logging
import time

from tfps import byte_size
from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.cluster import resources
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import LocalExecutor
from tfps.errors import RunError, UserError
from tfps.evaluation.history import Evaluation, Evaluations
from tfps.experiment.experiment import NO_EXPORT
from tfps.planner.memory import ExportSize, Placement, evaluator_bytes
from trainer.chief.engine import Engine
from trainer.chief.exports import Exporter
from trainer.chief.run_inputs import RunInputs

_POLL_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates the newest checkpoint whenever it has not been evaluated, and exports the best.

    What it knows lies in `JOB_DIR/evaluations`, so that it may be killed and started again.
    """

    def __init__(
        self, inputs: RunInputs, end_of_chief: concurrent.futures.Future, stall_seconds: float
    ):
        _refuse_what_does_not_fit(inputs)
        self._inputs = inputs
        # Done behind the last checkpoint; has the error of a lost chief.
        self._end_of_chief = end_of_chief
        monitor = TaskMonitor({})
        self._engine = Engine.build(inputs, LocalExecutor(), monitor, stall_seconds)
        self._limited = PsCalls(monitor, stall_seconds)
        self._checkpoints = CheckpointDirectory(inputs.settings.job_dir)
        self._evaluations = Evaluations(inputs.settings.job_dir)

    def run(self) -> None:
        """Evaluates checkpoints; returns when the chief is done and its last one is evaluated."""
        _log.info("following the checkpoints of %s", self._inputs.settings.job_dir)
        while True:
            has_ended = self._end_of_chief.done()  # asked before looking for what it wrote last
            checkpoint = self._waiting()
            if checkpoint:
                self._evaluate(checkpoint)
            elif has_ended:
                self._end_of_chief.result()
                _log.info("the chief is done, and its last checkpoint evaluated")
                return
            else:
                time.sleep(_POLL_SECONDS)

    def _waiting(self) -> Checkpoint | None:
        """The newest checkpoint; None if it is evaluated, or there is none."""
        evaluated = max(self._evaluations.checkpoints(), default="")
        waiting = [name for name in self._checkpoints.names() if name > evaluated]
        if not waiting:
            return None
        *passed_over, newest = waiting
        if passed_over:
            _log.info("passing over %s: %s is newer", ", ".join(passed_over), newest)
        return self._checkpoints.find(newest)

    def _evaluate(self, checkpoint: Checkpoint) -> None:
        """Evaluates a checkpoint unless it is deleted before, and exports it if it is the best."""
        _log.info("evaluating %s", checkpoint.name)
        if not self._restore(checkpoint):
            _log.info("%s was deleted before it was read: newer ones replace it", checkpoint.path)
            return
        evaluation = self._engine.evaluate(checkpoint)
        # The export first: what has an evaluation is done with, also after a restart.
        is_exported = self._inputs.settings.experiment.train.export != NO_EXPORT
        if is_exported and self._is_best(evaluation):
            self._export(evaluation)
        self._evaluations.write(evaluation)
        _log.info(
            "evaluated %s after epoch %d on %s records in %.1f s: %s",
            checkpoint.name,
            evaluation.epoch,
            f"{evaluation.records:,}",
            evaluation.seconds,
            evaluation,
        )

    def _restore(self, checkpoint: Checkpoint) -> bool:
        """Reads a checkpoint's parameters; False if the chief has deleted it meanwhile."""
        error: Exception | None = None
        identities = self._inputs.data.train.identities()
        try:
            self._limited(
                "reading the checkpoint",
                lambda: restore(checkpoint, self._engine.store, identities),
                self._inputs.plan.layout.ps_bytes,
            )
        except (DamagedCheckpointError, RunError, UserError) as caught:
            error = caught
        # Read again: the chief deletes the marker first, and what is read by then is whole.
        if self._checkpoints.find(checkpoint.name) != checkpoint:
            return False
        if isinstance(error, DamagedCheckpointError):
            raise RunError(
                f"checkpoint {checkpoint.path} cannot be read ({error}); look whether its files "
                "are whole and can be read from here, and start the evaluator again"
            ) from None
        if error:
            raise error
        return True

    def _is_best(self, evaluation: Evaluation) -> bool:
        others = [
            x.metrics for x in self._evaluations.all() if x.checkpoint < evaluation.checkpoint
        ]
        best = self._inputs.plan.best_metric.best([*others, evaluation.metrics])
        return best == len(others)

    def _export(self, evaluation: Evaluation) -> None:
        exporter = Exporter(self._inputs, self._inputs.settings.job_dir.export_best)
        exported = self._limited(
            "exporting the model",
            lambda: exporter.export_store(
                self._engine.store, evaluation.checkpoint, evaluation.metrics
            ),
            self._inputs.plan.layout.ps_bytes,
        )
        name = self._inputs.plan.best_metric.name
        _log.info("exported %s, the best by %s, to %s", evaluation.checkpoint, name, exported.path)


def _refuse_what_does_not_fit(inputs: RunInputs) -> None:
    """Refuses parameters that are too large for one process, before it holds any of them."""
    size = ExportSize.of(inputs.plan.layout, inputs.settings.experiment.train.export_dtype)
    needed = evaluator_bytes(Placement.of(inputs.plan.layout, workers=1), size)
    limit = resources.memory_limit()
    if needed > limit:
        raise UserError(
            f"an evaluator holds whole checkpoints, which needs about {byte_size.show(needed)}; "
            f"this one may have {byte_size.show(limit)}. Leave it out of the job, and the workers "
            "evaluate on the parameters on the ps"
        )
