"""A lease: some neighbouring batches of one shard, to be trained once in one epoch."""

import dataclasses

from tfps.data.record_source import RecordSource


@dataclasses.dataclass(frozen=True)
class Lease:
    """The unit of scheduling, packing, progress and recovery: one closure trains it.

    Attributes:
        epoch: Epoch it belongs to, from 0.
        source: Its shard's file, and where its records begin.
        first: Its first record, counted in the shard; batches begin there.
        records: Number of its records; only the last batch of a shard is not a whole one.
        read_end: The record after the last that is read for it: the end of its last block.
        seed: Seed of the order within the shard and of random layers.
    """

    epoch: int
    source: RecordSource
    first: int
    records: int
    read_end: int
    seed: int

    @property
    def shard(self) -> str:
        """Its epoch and shard, for people."""
        return f"epoch {self.epoch + 1}, shard {self.source.path}"

    def __str__(self) -> str:
        return f"{self.shard}, records {self.first:,} to {self.first + self.records - 1:,}"
