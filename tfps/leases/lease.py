"""A lease: some neighbouring batches of one shard, to be trained once in one epoch."""

import dataclasses
import itertools
from typing import NamedTuple

from tfps.data.record_source import RecordSource


@dataclasses.dataclass(frozen=True)
class Lease:
    """The unit of scheduling, packing, progress and recovery: one closure trains it.

    Attributes:
        epoch: Epoch it belongs to, from 0.
        source: Its shard's file, where its records begin, and the bad ones known among them; its
            end is that of the lease's last block, which is read as a whole.
        first: Its first record, counted in the shard; batches begin there.
        records: Number of its records; only the last batch of a shard is not a whole one.
        seed: Seed of the order within the shard and of random layers.
    """

    epoch: int
    source: RecordSource
    first: int
    records: int
    seed: int

    @property
    def shard(self) -> str:
        """Its epoch and shard, for people."""
        return f"epoch {self.epoch + 1}, shard {self.source.path}"

    def __str__(self) -> str:
        return f"{self.shard}, records {self.first:,} to {self.first + self.records - 1:,}"


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
