"""Which checkpoints stay."""

import dataclasses
from collections.abc import Mapping

from tfps.evaluation.best import BestMetric


@dataclasses.dataclass(frozen=True)
class Retention:
    """The rule by which old checkpoints are deleted.

    Attributes:
        last: So many of the newest stay; if more than one, also the newest that does not need the
            same full checkpoint as they do, so that one damaged file does not spoil all.
        hours: The first stays for good, and after it one whenever so many hours have passed; 0 for
            none.
        best: The one with the best evaluation by this metric stays; None for none.
    """

    last: int
    hours: float = 0.0
    best: BestMetric | None = None

    def stay(
        self,
        saved_at: Mapping[str, float],
        metrics: Mapping[str, Mapping[str, float]],
        bases: Mapping[str, str],
    ) -> set[str]:
        """The checkpoints that stay; applied again and again, it never misses one it kept before.

        What one that stays needs stays too.

        Args:
            saved_at: For every checkpoint, oldest first, when it was saved, in seconds.
            metrics: For every checkpoint that was evaluated, oldest first, what was measured.
            bases: For every checkpoint, the full one that it needs; itself if it is one.
        """
        names = list(saved_at)
        found = set(names[-self.last :])
        if self.last > 1:
            found.update([name for name in names if bases[name] != bases[names[-1]]][-1:])
        if self.hours:
            last = None
            for name, time in saved_at.items():
                if last is None or time >= last + 3600.0 * self.hours:
                    found.add(name)
                    last = time
        best = self.best.best(list(metrics.values())) if self.best else None
        if best is not None:
            found.add(list(metrics)[best])
        return found | {bases[name] for name in found}
