"""How long a chief waits, and for whom."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class WaitLimits:
    """Limits of the chief's waits, as the flags of the same names have them.

    Attributes:
        min_workers: So many workers must be by then, 0 for all; the others join later.
        worker_wait_seconds: For a lost worker to be back before it is left out.
        evaluator_wait_seconds: For the evaluator, if there is one, to evaluate the last checkpoint.
    """

    connect_seconds: float = 300.0
    min_workers: int = 0
    worker_wait_seconds: float = 600.0
    ps_wait_seconds: float = 600.0
    stall_seconds: float = 600.0
    evaluator_wait_seconds: float = 600.0
