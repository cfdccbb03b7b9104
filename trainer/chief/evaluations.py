"""The evaluations of a job as its chief has them: made on the workers, or by the evaluator."""

import logging
import posixpath
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfps.checkpoint.checkpoint import Checkpoint, TrainedEpoch
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.errors import RunError, UserError
from tfps.evaluation.history import BestMetric, EarlyStopping, Evaluation, Evaluations
from tfps.export.versions import newest_version
from tfps.job_dir.report import BestEvaluation, EvaluationRow
from trainer.chief.engine import Engine
from trainer.chief.run_report import RunReport

_POLL_SECONDS = 0.5
_log = logging.getLogger(__name__)


class JobEvaluations:
    """All evaluations of a job and its earlier runs; an evaluator's are read from its files."""

    def __init__(
        self,
        engine: Engine,
        report: RunReport,
        wait_seconds: float,
        listeners: Sequence[Callable[[Sequence[Evaluation]], None]] = (),
    ):
        settings, data, plan = engine.inputs
        self.reason_to_stop: str | None = None
        self._engine = engine
        self._report = report
        self._wait_seconds = wait_seconds
        self._listeners = listeners
        self._settings = settings
        self._metric = plan.best_metric
        self._rule = EarlyStopping(self._metric, settings.experiment.train.early_stopping)
        self._files = Evaluations(settings.job_dir)
        self._checkpoints = CheckpointDirectory(settings.job_dir)
        self._known: list[Evaluation] = []
        self._dataset = data.eval.identity if data.eval else None

    def take_up(self, resumed: Checkpoint | None) -> None:
        """Reads the evaluations, deletes those of another training; `resumed` None if it is new."""
        if self._dataset:
            self._delete_stale(resumed)
            self._take()

    def has(self, checkpoint: Checkpoint) -> bool:
        """Whether there is an evaluation of a checkpoint, as far as was looked."""
        return self.metrics_of(checkpoint) is not None

    def best(self) -> Checkpoint | None:
        """The checkpoint of the best evaluation; None if no evaluation has a number."""
        index = self._metric.best([x.metrics for x in self._known])
        if index is None:
            return None
        name = self._known[index].checkpoint
        found = self._checkpoints.find(name)
        if found is None:
            path = posixpath.join(self._checkpoints.path, name)
            raise RunError(
                f"checkpoint {path}, of the best evaluation, is gone; put it back from a copy, or "
                "export the last one with --train.export=last"
            )
        return found

    def metrics_of(self, checkpoint: Checkpoint) -> dict[str, float] | None:
        """What was measured of a checkpoint, by name; None if nothing was."""
        return next((x.metrics for x in self._known if x.checkpoint == checkpoint.name), None)

    def metrics_after(self, epoch: TrainedEpoch) -> dict[str, float] | None:
        """What was measured at the end of an epoch, by name; None if nothing was."""
        wanted = epoch.number + 1, epoch.steps
        return next((x.metrics for x in self._known if (x.epoch, x.steps) == wanted), None)

    def update(self, checkpoint: Checkpoint, has_ended_epoch: bool) -> None:
        """Evaluates the checkpoint if it ends an epoch, or takes what the evaluator has written."""
        if self._settings.evaluator:
            self._collect()
        elif self._dataset and has_ended_epoch:
            self._evaluate(checkpoint)

    def finish(self, checkpoint: Checkpoint) -> None:
        """Waits for the evaluator's last evaluation; workers do it if it takes too long."""
        if not self._settings.evaluator:
            return
        _log.info("waiting for %s to evaluate %s", self._settings.evaluator, checkpoint.path)
        deadline = time.monotonic() + self._wait_seconds
        while not self.has(checkpoint) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            self._collect()
        if not self.has(checkpoint):
            _log.warning(
                "%s has not evaluated %s within %.0f s: the workers do it now; look "
                "at the evaluator's log, or allow more with --task_wait_seconds",
                self._settings.evaluator,
                checkpoint.path,
                self._wait_seconds,
            )
            self._evaluate(checkpoint)
        path = newest_version(self._settings.job_dir.export_best)
        if path:
            self._report.update(export_best=path)

    def _delete_stale(self, resumed: Checkpoint | None) -> None:
        newest = resumed.name if resumed else ""
        gone = self._files.delete(lambda x: x.checkpoint > newest or x.dataset != self._dataset)
        if gone:
            _log.info(
                "deleted %d evaluations: of other data, or of checkpoints after the one that this "
                "run begins from",
                gone,
            )

    def _evaluate(self, checkpoint: Checkpoint) -> None:
        self._files.write(self._engine.evaluate(checkpoint))
        self._collect()

    def _collect(self) -> None:
        """Logs and reports the evaluations that are new."""
        for evaluation in self._take():
            _log.info("evaluation after epoch %d: %s", evaluation.epoch, evaluation)

    def _take(self) -> list[Evaluation]:
        """Reports all evaluations, applies the rule, and returns those that are new."""
        found = self._files.all()
        new = [evaluation for evaluation in found if evaluation not in self._known]
        if not new:
            return []
        if any(evaluation.dataset != self._dataset for evaluation in new):
            directory = self._settings.experiment.data.eval
            raise UserError(
                f"the evaluator evaluates other data than --data.eval={directory}; give every task "
                "the same flags"
            )
        self._known = found
        for listener in self._listeners:
            listener(new)
        self.reason_to_stop = self._rule.reason(found)
        self._report.update(**evaluation_fields(found, self._metric))
        return new


def evaluation_fields(evaluations: Sequence[Evaluation], metric: BestMetric) -> dict[str, Any]:
    """What all evaluations measured, and which is the best: fields of the report."""
    rows = [EvaluationRow(x.epoch, x.steps, x.metrics) for x in evaluations]
    best = metric.best([x.metrics for x in evaluations])
    return {
        "metrics": rows[-1].metrics,
        "evaluations": rows,
        "best_evaluation": None if best is None else BestEvaluation(metric.name, rows[best]),
    }
