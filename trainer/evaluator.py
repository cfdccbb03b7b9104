"""The evaluator's work: it follows a job's checkpoints and evaluates them in its own process."""

import concurrent.futures
import logging
import time

from tfps import byte_size
from tfps.checkpoint.restore import restore
from tfps.cluster import own_memory
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import LocalExecutor
from tfps.errors import UserError
from tfps.planner.export_size import ExportSize, evaluator_bytes
from tfps.planner.memory import Placement
from trainer.chief.checkpoint_evaluator import CheckpointEvaluator
from trainer.chief.engine import Engine
from trainer.chief.run_inputs import RunInputs

_POLL_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates the newest checkpoint whenever there is one that has not been evaluated."""

    def __init__(
        self, inputs: RunInputs, end_of_chief: concurrent.futures.Future, stall_seconds: float
    ):
        """Creates the parameters, all in this process.

        Args:
            inputs: The run's.
            end_of_chief: Done when the chief will write no more checkpoints; holds the error if
                the chief never came, or went away without being done.
            stall_seconds: Limit for the next evaluated shard.

        Raises:
            UserError: If they take more memory than this process may have.
        """
        _refuse_what_does_not_fit(inputs)
        self._inputs = inputs
        self._end_of_chief = end_of_chief
        monitor = TaskMonitor({})
        engine = Engine.build(inputs, LocalExecutor(), monitor, stall_seconds)
        identities = inputs.data.identities()
        self._checkpoints = CheckpointEvaluator(
            engine,
            inputs.job_dir,
            lambda checkpoint, store: restore(checkpoint, store, identities),
            PsCalls(monitor, stall_seconds),
        )

    def run(self) -> None:
        """Evaluates checkpoints; returns when the chief is done and its last one is evaluated.

        Raises:
            UserError: If a checkpoint or a shard cannot be used.
            RunError: If a checkpoint cannot be read, or the chief is gone without being done.
        """
        _log.info("following the checkpoints of %s", self._inputs.job_dir)
        while True:
            has_ended = self._end_of_chief.done()  # asked before looking for what it wrote last
            checkpoint = self._checkpoints.waiting()
            if checkpoint:
                self._checkpoints.evaluate(checkpoint)
            elif has_ended:
                self._end_of_chief.result()
                _log.info("the chief is done, and its last checkpoint evaluated")
                return
            else:
                time.sleep(_POLL_SECONDS)


def _refuse_what_does_not_fit(inputs: RunInputs) -> None:
    """Refuses parameters that are too large for one process, before it holds any of them."""
    size = ExportSize.of(inputs.layout, inputs.experiment.train.export_dtype)
    needed = evaluator_bytes(Placement.of(inputs.layout, workers=1), size)
    limit = own_memory.limit()
    if needed > limit:
        raise UserError(
            f"an evaluator holds whole checkpoints, which needs about {byte_size.show(needed)}; "
            f"this one may have {byte_size.show(limit)}. Leave it out of the job, and the workers "
            "evaluate on the parameters on the ps; or have a job evaluate on ps of its own: "
            "--train.evaluator_job=true here, --job=evaluate --follow there (docs/evaluation.md)"
        )
