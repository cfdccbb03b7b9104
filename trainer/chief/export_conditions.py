"""What evaluation must have measured of a model for it to become a version: `train.export_if`."""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

from tfps.errors import UserError

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=|>|<)\s*(newest(?=$|[+-])|)(\S*)\s*")


class Condition(NamedTuple):
    """One comparison of a metric with a number, or with the newest version's and a difference."""

    metric: str
    comparison: str
    is_relative: bool
    limit: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """The condition of a text such as `auc>=0.8` or `auc>=newest-0.005`."""
        match = _CONDITION.fullmatch(text.strip())
        try:
            limit = float(match[4] or (match[3] and "0")) if match else math.nan
        except ValueError:
            limit = math.nan
        if match is None or math.isnan(limit):
            raise UserError(
                f"train.export_if={text}: write METRIC>=NUMBER, such as 'auc>=0.8', or compare "
                "with the newest version, as in 'auc>=newest-0.005'"
            )
        return cls(match[1], match[2], bool(match[3]), limit)

    def __str__(self) -> str:
        limit = f"newest{self.limit:+g}" if self.is_relative else f"{self.limit:g}"
        return f"{self.metric}{self.comparison}{limit}"

    def holds(self, measured: Mapping[str, float], newest: Mapping[str, float]) -> bool:
        """Whether a model is good enough; NaN is not, a comparison without a newest version is."""
        limit = self.limit
        if self.is_relative:
            limit += newest.get(self.metric, math.nan)
            if not math.isfinite(limit):
                return True
        return _COMPARE[self.comparison](measured.get(self.metric, math.nan), limit)


def check(conditions: Sequence[str], metrics: Sequence[str]) -> None:
    """Refuses conditions that are none, or of metrics that no evaluation has."""
    for condition in map(Condition.parse, conditions):
        if condition.metric not in metrics:
            raise UserError(
                f"train.export_if={condition}: there is no metric {condition.metric!r}; use one "
                f"of {', '.join(metrics)}"
            )


def unmet(
    conditions: Sequence[str], measured: Mapping[str, float], newest: Mapping[str, float]
) -> str:
    """Which condition a model does not meet, with what was measured; empty if it meets all."""
    for condition in map(Condition.parse, conditions):
        if not condition.holds(measured, newest):
            value = measured.get(condition.metric, math.nan)
            return f"{condition.metric} is {value:.6g}, but train.export_if={condition}"
    return ""
