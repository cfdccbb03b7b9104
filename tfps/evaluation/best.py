"""Which of several evaluations is the best, and whether later ones can be hoped to be better."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tfps.errors import UserError
from tfps.evaluation.history import Evaluation

_LOWER, _HIGHER = "min", "max"
# The metrics that tfps itself computes; `LABEL_auc` is the AUC of one of several labels.
_DIRECTIONS = {
    **dict.fromkeys(("loss", "mse", "mae", "log_loss", "normalized_entropy"), _LOWER),
    **dict.fromkeys(("auc", "accuracy"), _HIGHER),
}


@dataclasses.dataclass(frozen=True)
class BestMetric:
    """A metric by which evaluations are compared.

    Attributes:
        is_higher_better: Whether a higher value is better, else a lower one.
    """

    name: str
    is_higher_better: bool

    @classmethod
    def of(cls, setting: str, names: Sequence[str]) -> "BestMetric":
        """Reads `train.best_metric`.

        Args:
            setting: A metric's name, such as `auc`; for a metric whose direction is not known by
                its name with `max:` or `min:` before it, such as `min:rmse`.
        """
        where = f"train.best_metric={setting}"
        said, colon, rest = setting.partition(":")
        name = rest if colon else setting
        if name not in names:
            raise UserError(f"{where}: there is no metric {name!r}; use one of {', '.join(names)}")
        direction = said if colon else known_direction(name)
        if direction not in (_LOWER, _HIGHER):
            raise UserError(
                f"{where} does not say what is better; write max:{name} if a higher value is, "
                f"min:{name} if a lower one"
            )
        return cls(name, direction == _HIGHER)

    def is_better(self, metrics: Mapping[str, float], than: Mapping[str, float]) -> bool:
        """Whether the first metrics are strictly better than the second.

        A value that is absent or not finite is worse than any number.
        """
        return self._score(metrics) > self._score(than)

    def best(self, evaluations: Sequence[Mapping[str, float]]) -> int | None:
        """Index of the best of some evaluations' metrics, the first of equals.

        Returns:
            None when none of them has a number for the metric.
        """
        scores = [self._score(metrics) for metrics in evaluations]
        highest = max(scores, default=-math.inf)
        return scores.index(highest) if math.isfinite(highest) else None

    def _score(self, metrics: Mapping[str, float]) -> float:
        value = metrics.get(self.name, math.nan)
        if not math.isfinite(value):
            return -math.inf
        return value if self.is_higher_better else -value


def known_direction(name: str) -> str:
    """What is better of a metric that tfps computes, also for one label: `min` or `max`.

    Empty for any other metric.
    """
    known = [each for each in _DIRECTIONS if name == each or name.endswith(f"_{each}")]
    return _DIRECTIONS[max(known, key=len)] if known else ""


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """The rule: stop when the best evaluation is so many evaluations old.

    Attributes:
        patience: Evaluations in a row without a better one that end the training; 0 for none.
    """

    metric: BestMetric
    patience: int

    def reason(self, evaluations: Sequence[Evaluation]) -> str | None:
        """Why to stop, in words; None to go on."""
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
