"""How long a chief waits, for whom, and how many it asks for."""

import dataclasses
import re
from typing import NamedTuple, Self

from tfps.errors import UserError


class Autoscale(NamedTuple):
    """Between which numbers of workers a run chooses, and the seconds that it measures each for."""

    least: int
    most: int
    seconds: float
    most_ps: int = 0  # 0: the ps stay as many as they are

    @classmethod
    def parse(cls, text: str, seconds: float) -> Self:
        """The numbers that `MIN:MAX` or `MIN:MAX,PS` names."""
        match = re.fullmatch(r"(\d+):(\d+)(?:,(\d+))?", text)
        numbers = match.groups(default="0") if match else ("0",) * 3
        least, most, most_ps = map(int, numbers)
        if not 0 < least < most:
            raise UserError(
                f"--autoscale={text}: write MIN:MAX workers, such as 2:8, or MIN:MAX,PS for up to "
                "PS ps too, such as 2:8,4"
            )
        return cls(least, most, seconds, most_ps)


@dataclasses.dataclass(frozen=True)
class WaitLimits:
    """The chief's waits in seconds, as the flags of the same names; `min_workers` 0 for all.

    Without `autoscale` the run keeps its number of workers.
    """

    connect_seconds: float = 300.0
    min_workers: int = 0
    task_wait_seconds: float = 600.0
    stall_seconds: float = 600.0
    autoscale: Autoscale | None = None
