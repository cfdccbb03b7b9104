"""The leases of a run: todo, doing, done."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tfps.lease import Lease


@dataclasses.dataclass(frozen=True)
class QueueState:
    """What a checkpoint keeps of a queue.

    Attributes:
        epoch: The epoch being trained, from 0.
        done: Shards of that epoch that are trained, in ascending order.
        trained: Records trained since the run began, over all epochs.
        repeated: Records of batches that may have been trained twice.
    """

    epoch: int = 0
    done: tuple[int, ...] = ()
    trained: int = 0
    repeated: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {**dataclasses.asdict(self), "done": list(self.done)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "QueueState":
        """From what `to_json` gave."""
        return cls(
            int(data["epoch"]), tuple(data["done"]), int(data["trained"]), int(data["repeated"])
        )


class LeaseQueue:
    """Gives out every lease of every epoch once; one epoch ends before the next begins."""

    def __init__(self, leases_of: Callable[[int], list[Lease]], epochs: int, state: QueueState):
        """Starts where a state left off.

        Args:
            leases_of: The leases of an epoch, in the order in which to give them out.
            epochs: Number of epochs.
            state: Where to start.
        """
        self._leases_of = leases_of
        self._epochs = epochs
        self._epoch = state.epoch
        self._done = set(state.done)
        self._trained = state.trained
        self._repeated = state.repeated
        self._doing: set[Lease] = set()
        self._todo = self._unfinished()

    @property
    def epoch(self) -> int:
        """The epoch being trained, from 0; the number of epochs when all are."""
        return self._epoch

    @property
    def finished(self) -> bool:
        """Whether every epoch is trained."""
        return self._epoch >= self._epochs

    @property
    def epoch_finished(self) -> bool:
        """Whether every lease of the epoch is done."""
        return not self._todo and not self._doing

    @property
    def idle(self) -> bool:
        """Whether no lease is being trained, so that parameters and state belong together."""
        return not self._doing

    @property
    def trained(self) -> int:
        """Records of all leases done."""
        return self._trained

    @property
    def repeated(self) -> int:
        """Records of batches that may have been trained twice."""
        return self._repeated

    def take(self) -> Lease | None:
        """The next lease, now doing; None when none is left to give out in this epoch."""
        if not self._todo:
            return None
        lease = self._todo.pop(0)
        self._doing.add(lease)
        return lease

    def finish(self, lease: Lease, repeated: int = 0) -> None:
        """Marks a lease done.

        Args:
            lease: A lease that is doing.
            repeated: Records of its batches that may have been trained twice.
        """
        self._doing.remove(lease)
        self._done.add(lease.shard)
        self._trained += lease.records
        self._repeated += repeated

    def next_epoch(self) -> None:
        """Goes to the next epoch; the current one must be finished."""
        if not self.epoch_finished:
            raise ValueError(f"epoch {self._epoch} has leases that are not done")
        self._epoch += 1
        self._done.clear()
        self._todo = self._unfinished()

    def state(self) -> QueueState:
        """What to keep; only when `idle`."""
        if not self.idle:
            raise ValueError(f"{len(self._doing)} leases are being trained")
        return QueueState(self._epoch, tuple(sorted(self._done)), self._trained, self._repeated)

    def _unfinished(self) -> list[Lease]:
        if self.finished:
            return []
        return [lease for lease in self._leases_of(self._epoch) if lease.shard not in self._done]
