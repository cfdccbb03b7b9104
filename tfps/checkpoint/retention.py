"""Which checkpoints stay."""

import dataclasses
from collections.abc import Mapping

from tfps.best_metric import BestMetric


@dataclasses.dataclass(frozen=True)
class Retention:
    """The rule by which old checkpoints are deleted.

    Attributes:
        last: So many of the newest stay.
        hours: The first stays for good, and after it one whenever so many hours have passed; 0 for
            none.
        best: The one with the best evaluation by this metric stays; None for none.
    """

    last: int
    hours: float = 0.0
    best: BestMetric | None = None

    def stay(
        self, saved_at: Mapping[str, float], metrics: Mapping[str, Mapping[str, float]]
    ) -> set[str]:
        """The checkpoints that stay; applied again and again, it never misses one it kept before.

        Args:
            saved_at: For every checkpoint, oldest first, when it was saved, in seconds.
            metrics: For every checkpoint that was evaluated, oldest first, what was measured.
        """
        found = set(list(saved_at)[-self.last :])
        if self.hours:
            last = None
            for name, time in saved_at.items():
                if last is None or time >= last + 3600.0 * self.hours:
                    found.add(name)
                    last = time
        best = self.best.best(list(metrics.values())) if self.best else None
        return found if best is None else found | {list(metrics)[best]}
