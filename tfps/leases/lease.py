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
        source: The shard's file, where its records begin, and the bad ones known among them; its
            end is that of the lease's last block, which is read as a whole.
        first: Its first record, counted in the shard; batches begin there.
        records: Number of its records; only the last batch of a shard is not a whole one.
    """

    epoch: int
    shard: int
    source: RecordSource
    first: int
    records: int
    seed: int
    batch_size: int

    @property
    def batches(self) -> int:
        """Number of its batches."""
        return -(-self.records // self.batch_size)

    @property
    def first_batch(self) -> int:
        """Its first batch, counted in the shard."""
        return self.first // self.batch_size

    def records_of(self, batches: int) -> int:
        """Records of its first batches.

        Args:
            batches: How many; where more than the lease has, its records are all.
        """
        return min(batches * self.batch_size, self.records)

    @property
    def where(self) -> str:
        """Its epoch and shard, for people."""
        return f"epoch {self.epoch + 1}, shard {self.source.path}"

    def __str__(self) -> str:
        return f"{self.where}, records {self.first:,} to {self.first + self.records - 1:,}"


class LeaseShare(NamedTuple):
    """Neighbouring batches of a lease, which one replica trains."""

    begin: int
    end: int
    records: int

    @property
    def batches(self) -> int:
        """Number of its batches."""
        return self.end - self.begin

    @classmethod
    def of(cls, lease: Lease, replicas: int) -> list["LeaseShare"]:
        """The shares of all replicas, which differ by one batch at most."""
        bounds = [lease.batches * replica // replicas for replica in range(replicas + 1)]
        return [
            cls(
                lease.first_batch + begin,
                lease.first_batch + end,
                lease.records_of(end) - lease.records_of(begin),
            )
            for begin, end in itertools.pairwise(bounds)
        ]
