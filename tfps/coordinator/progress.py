"""How far a training has come."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far the training has come.

    Attributes:
        epoch: From 0.
        examples: Records trained since the run began, those of unfinished leases included.
        examples_per_second: At steady state.
        loss: Mean loss of the records trained since the last report, None when there were none.
    """

    epoch: int
    examples: int
    examples_per_second: float
    loss: float | None
