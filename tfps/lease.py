"""A lease: the records of one shard, to be trained once in one epoch."""

import dataclasses
import random
from collections.abc import Sequence

from tfps.shard import Shard


@dataclasses.dataclass(frozen=True)
class Lease:
    """The unit of scheduling, packing, progress and recovery.

    Attributes:
        epoch: Epoch it belongs to, from 0.
        shard: Index of its shard in the manifest.
        path: Path of the shard.
        records: Number of its records.
        seed: Seed of the order in which its records are read and of random layers.
    """

    epoch: int
    shard: int
    path: str
    records: int
    seed: int

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, shard {self.path}"


def leases_of_epoch(
    shards: Sequence[Shard], paths: Sequence[str], epoch: int, seed: int
) -> list[Lease]:
    """The leases of one epoch, in an order drawn from the seed and the epoch.

    Shards without records need no lease.
    """
    order = random.Random(f"{seed} {epoch}")  # noqa: S311 (an order, not a secret)
    leases = [
        Lease(epoch, index, path, shard.records, order.getrandbits(62))
        for index, (shard, path) in enumerate(zip(shards, paths, strict=True))
        if shard.records
    ]
    order.shuffle(leases)
    return leases
