"""What a run lost with its ps, and how long it took to train again."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from tfps.errors import RunError
from tfps.job_dir.report_fields import ReportedRecovery

_MOST_WITHOUT_PROGRESS = 5


@dataclasses.dataclass
class Recovery:
    """One loss of ps, after which the run went back to a checkpoint.

    Attributes:
        when: Seconds since the epoch at which the chief noticed it.
        records: Trained since that checkpoint, and to be trained again.
        seconds: Until the next batch was trained; None while none is.
    """

    what: str
    when: float
    records: int = 0
    seconds: float | None = None


class Recoveries:
    """The recoveries of a run, told by it as it loses parameters, restores them and trains on."""

    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._recoveries: list[Recovery] = []
        self._trained = 0  # as far as is known
        self._in_vain = 0  # recoveries since the last trained batch

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Recoveries":
        """From what `to_json` gave, in the process that goes on."""
        found = cls()
        found._recoveries = [Recovery(**each) for each in data["recoveries"]]
        found._trained, found._in_vain = data["trained"], data["in_vain"]
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data, for a process that begins again."""
        return {
            "recoveries": [dataclasses.asdict(each) for each in self._recoveries],
            "trained": self._trained,
            "in_vain": self._in_vain,
        }

    def trained(self, examples: int) -> float | None:
        """Notes how many records are trained by now.

        Returns:
            The seconds that the last recovery took, if these are the first records after it.
        """
        is_more, self._trained = examples > self._trained, examples
        if not is_more or not self._in_vain:
            return None
        self._in_vain = 0
        last = self._recoveries[-1]
        last.seconds = self._clock() - last.when
        return last.seconds

    def begin(self, what: str) -> None:
        """Notes a loss."""
        self._recoveries.append(Recovery(what, self._clock()))
        self._in_vain += 1
        if self._in_vain > _MOST_WITHOUT_PROGRESS:
            raise RunError(
                f"{what}, as {_MOST_WITHOUT_PROGRESS} times before without a batch trained in "
                "between; look at its log, mend what ends it, and start every task again with the "
                "same --job_dir to go on from the last checkpoint"
            )

    def restored(self, examples: int) -> None:
        """Notes how many records the restored parameters were trained on."""
        if self._in_vain:
            self._recoveries[-1].records += self._trained - examples
        self._trained = examples

    def report(self) -> list[ReportedRecovery]:
        """All of them, as they are now."""
        return [
            ReportedRecovery(each.what, each.when, each.records, each.seconds)
            for each in self._recoveries
        ]
