"""How several replicas share a lease."""

import itertools
from typing import NamedTuple

from tfps.leases.lease import Lease


class LeasePart(NamedTuple):
    """Neighbouring batches of a lease, which one replica trains.

    Attributes:
        begin: Its first batch, counted in the shard.
        end: The batch after its last.
        records: Number of its records.
    """

    begin: int
    end: int
    records: int

    @property
    def batches(self) -> int:
        """Number of its batches."""
        return self.end - self.begin

    @classmethod
    def of(cls, lease: Lease, replicas: int, batch_size: int) -> list["LeasePart"]:
        """The parts of all replicas, which differ by one batch at most.

        Args:
            lease: What is shared.
            replicas: How many share it.
            batch_size: Records of one replica's batch.
        """
        first, count = lease.first // batch_size, -(-lease.records // batch_size)
        bounds = [first + count * replica // replicas for replica in range(replicas + 1)]
        records = [min(bound * batch_size, lease.first + lease.records) for bound in bounds]
        return [
            cls(*batches, last - begin)
            for batches, (begin, last) in zip(
                itertools.pairwise(bounds), itertools.pairwise(records), strict=True
            )
        ]
