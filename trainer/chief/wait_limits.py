"""How long a chief waits, and for whom."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class WaitLimits:
    """The chief's waits in seconds, as the flags of the same names; `min_workers` 0 for all."""

    connect_seconds: float = 300.0
    min_workers: int = 0
    task_wait_seconds: float = 600.0
    stall_seconds: float = 600.0
