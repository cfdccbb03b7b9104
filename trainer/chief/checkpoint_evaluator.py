"""Evaluates the newest checkpoint of a job, wherever the parameters are read into."""

import logging
import posixpath
from collections.abc import Callable

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.failures import DamagedCheckpointError
from tfps.cluster.ps_calls import PsCalls
from tfps.errors import LostPsError, RunError, UserError
from tfps.evaluation.history import Evaluation, Evaluations
from tfps.experiment.experiment import NO_EXPORT
from tfps.export.saved_model import EXPORT_BEST
from tfps.store.parameter_store import ParameterStore
from trainer.chief.engine import Engine
from trainer.chief.exports import Exporter

_log = logging.getLogger(__name__)

Read = Callable[[Checkpoint, ParameterStore], None]


class CheckpointEvaluator:
    """Evaluates the newest checkpoint of a job if it has not been evaluated, and exports the best.

    What it knows lies in `JOB_DIR/evaluations`, so that it may be lost and made again.
    """

    def __init__(self, engine: Engine, job_dir: str, read: Read, ps_calls: PsCalls):
        """Evaluates nothing yet.

        Args:
            engine: Whose parameters are overwritten by those of the checkpoints.
            job_dir: Of the job that writes the checkpoints.
            read: Checks a checkpoint and reads it into a store.
            ps_calls: Makes the calls that read and write parameters.
        """
        self._engine = engine
        self._inputs = engine.inputs
        self._job_dir = job_dir
        self._read = read
        self._ps_calls = ps_calls
        self._checkpoints = CheckpointDirectory(job_dir)
        self._evaluations = Evaluations(job_dir)

    def all(self) -> list[Evaluation]:
        """Every evaluation of the job, in the order of the training."""
        return self._evaluations.all()

    def waiting(self) -> Checkpoint | None:
        """The newest checkpoint; None if it is evaluated, or there is none."""
        evaluated = max(self._evaluations.checkpoints(), default="")
        waiting = [name for name in self._checkpoints.names() if name > evaluated]
        if not waiting:
            return None
        *passed_over, newest = waiting
        if passed_over:
            _log.info("passing over %s: %s is newer", ", ".join(passed_over), newest)
        return self._checkpoints.find(newest)

    def evaluate(self, checkpoint: Checkpoint) -> Evaluation | None:
        """Evaluates one checkpoint, and exports it if it is the best so far.

        Args:
            checkpoint: One that was waiting.

        Returns:
            What was measured; None if the checkpoint was deleted before it was read.

        Raises:
            UserError: If the checkpoint or a shard cannot be used.
            RunError: If the checkpoint cannot be read.
            LostPsError: If a ps is lost meanwhile.
        """
        _log.info("evaluating %s", checkpoint.name)
        if not self._restore(checkpoint):
            _log.info("%s was deleted before it was read: newer ones replace it", checkpoint.path)
            return None
        evaluation = self._engine.evaluate(checkpoint)
        # The export first: what has an evaluation is done with, also after a restart.
        is_exported = self._inputs.experiment.train.export != NO_EXPORT
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
        return evaluation

    def _restore(self, checkpoint: Checkpoint) -> bool:
        """Reads a checkpoint's parameters; False if the chief has deleted it meanwhile."""
        error: Exception | None = None
        store, moved = self._engine.store, self._inputs.layout.ps_bytes
        try:
            self._ps_calls("reading the checkpoint", lambda: self._read(checkpoint, store), moved)
        except LostPsError:
            raise
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
        best = self._inputs.best_metric.best([*others, evaluation.metrics])
        return best == len(others)

    def _export(self, evaluation: Evaluation) -> None:
        exporter = Exporter(self._inputs, posixpath.join(self._job_dir, EXPORT_BEST))
        exported = self._ps_calls(
            "exporting the model",
            lambda: exporter.export_store(
                self._engine.store, evaluation.checkpoint, evaluation.metrics
            ),
            self._inputs.layout.ps_bytes,
        )
        name = self._inputs.best_metric.name
        _log.info("exported %s, the best by %s, to %s", evaluation.checkpoint, name, exported.path)
