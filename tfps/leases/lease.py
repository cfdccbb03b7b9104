"""A lease: some neighbouring batches of one shard, to be trained once in one epoch."""

import dataclasses

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
