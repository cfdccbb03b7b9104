"""When to stop training before its last epoch: when evaluations do not get better any more."""

import dataclasses
from collections.abc import Sequence

from tfps.evaluation.best import BestMetric
from tfps.evaluation.history import Evaluation


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """The rule: stop when the best evaluation is so many evaluations old.

    Attributes:
        metric: Which evaluation is the best.
        patience: Evaluations in a row without a better one that end the training; 0 for none.
    """

    metric: BestMetric
    patience: int

    def reason(self, evaluations: Sequence[Evaluation]) -> str | None:
        """Why to stop, in words; None to go on.

        Args:
            evaluations: In the order of the training.
        """
        best = self.metric.best([evaluation.metrics for evaluation in evaluations])
        since = len(evaluations) if best is None else len(evaluations) - 1 - best
        if not self.patience or since < self.patience:
            return None
        name = self.metric.name
        if best is None:
            return f"none of {since} evaluations has a number for {name}"
        found = evaluations[best]
        return (
            f"{name} has not become better than {found.metrics[name]:.4f} (epoch {found.epoch}, "
            f"{found.steps:,} steps) in {since} evaluations"
        )
