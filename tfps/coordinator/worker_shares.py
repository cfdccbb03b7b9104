"""Which worker trained how much."""

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class _Share:
    leases: int = 0
    records: int = 0
    seconds: float = 0.0
    idle_seconds: float = 0.0
    ended: float | None = None  # when its last lease did, within this stretch of training


class WorkerShares:
    """Counts by worker, told by the closures as they end."""

    def __init__(self, workers: Sequence[int]):
        """Starts at 0.

        Args:
            workers: Their indices.
        """
        self._shares = [_Share() for _ in range(1 + max(workers))]

    def begin(self) -> None:
        """Training begins, or goes on after a pause, which no worker is to be blamed for."""
        for share in self._shares:
            share.ended = None

    def trained(
        self, worker: int, records: int, began: float, seconds: float, leases: int = 1
    ) -> None:
        """Notes a closure that has ended.

        Args:
            worker: Index of the worker that ran it.
            records: Of the lease that is done with it.
            began: When the closure began, on the worker's clock.
            seconds: How long it ran.
            leases: How many are done with it: 0 or 1.
        """
        share = self._shares[worker]
        share.leases += leases
        share.records += records
        share.seconds += seconds
        if share.ended is not None:
            share.idle_seconds += max(0.0, began - share.ended)
        share.ended = began + seconds

    def report(self) -> list[dict[str, Any]]:
        """The shares, by index of the worker, as JSON-ready data."""
        return [
            {
                "leases": share.leases,
                "records": share.records,
                "seconds": round(share.seconds, 3),
                "idle_seconds": round(share.idle_seconds, 3),
            }
            for share in self._shares
        ]
