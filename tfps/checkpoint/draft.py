"""What a checkpoint is to hold."""

import dataclasses
from typing import Any

from tfps.checkpoint.increment import Increment
from tfps.leases.queue import QueueState
from tfps.store.parameter_store import ParameterStore


@dataclasses.dataclass(frozen=True)
class Draft:
    """A state of the parameters and the leases that belongs together, not written yet.

    Attributes:
        steps: Updates of the parameters.
        queue: State of the lease queue.
        dataset: Identity of the training data.
        signature: What must be equal for the parameters to fit.
        increment: What to write of the tables; None for all of everything.
    """

    steps: int
    queue: QueueState
    dataset: dict[str, Any]
    signature: dict[str, Any]
    increment: Increment | None = None

    @classmethod
    def of(
        cls,
        store: ParameterStore,
        queue: QueueState,
        dataset: dict[str, Any],
        increment: Increment | None = None,
    ) -> "Draft":
        """What there is now, while no worker is changing the parameters."""
        return cls(store.steps(), queue, dataset, store.signature(), increment)

    @property
    def name(self) -> str:
        """Names the state, later ones behind earlier ones."""
        # Steps alone name no state: those that the loss scale skips change no parameter.
        return f"{self.steps:012d}-{self.queue.epoch:06d}-{self.queue.cursor:012d}"
