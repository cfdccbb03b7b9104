"""The order in which an epoch's records are trained."""

import dataclasses
import random
from collections.abc import Iterable
from typing import NamedTuple

from tfps.data.batches import Batching
from tfps.data.shards import Shard
from tfps.experiment.experiment import Experiment

# Saved positions in an epoch count on it: when it changes, the checkpoint's format has to.
CHUNK_BLOCKS = 64


class Chunk(NamedTuple):
    """Neighbouring records of one shard that an epoch's order keeps together."""

    shard: int
    first: int
    records: int


@dataclasses.dataclass(frozen=True)
class EpochOrder:
    """What the order depends on, beside the shards; never on speed or on who trains.

    Every shard is cut into chunks of `CHUNK_BLOCKS` blocks, and the chunks of all shards are
    shuffled. Within a block the records are shuffled.

    Attributes:
        shuffle_buffer: Records of a block, rounded up to whole batches; 0 keeps a shard in one
            chunk and its records in order.
    """

    batch_size: int
    shuffle_buffer: int
    seed: int

    @classmethod
    def of(cls, experiment: Experiment) -> "EpochOrder":
        """The order of an experiment."""
        train = experiment.train
        return cls(train.batch_size, experiment.data.shuffle_buffer, train.seed)

    @property
    def block_batches(self) -> int:
        """Batches of a block; 0 without shuffling."""
        return -(-self.shuffle_buffer // self.batch_size)

    @classmethod
    def batching(cls, experiment: Experiment) -> Batching:
        """How an experiment's training records become batches."""
        order = cls.of(experiment)
        return Batching(
            experiment.task.schema(),
            order.batch_size,
            order.block_batches,
            experiment.data.parse_threads,
            experiment.negatives(),
        )

    def chunks(self, shards: Iterable[tuple[int, Shard]], epoch: int) -> list[Chunk]:
        """All records of an epoch, in the order of training.

        A compressed shard can only be read from its beginning and is one chunk.

        Args:
            epoch: The epoch, from 0.
        """
        size = CHUNK_BLOCKS * self.block_batches * self.batch_size
        found = []
        for number, shard in shards:
            step = size if size and not shard.compression else max(1, shard.records)
            for first in range(0, shard.records, step):
                found.append(Chunk(number, first, min(step, shard.records - first)))
        random.Random(f"{self.seed} {epoch}").shuffle(found)  # noqa: S311 (an order, not a secret)
        return found

    def shard_seed(self, epoch: int, shard: int) -> int:
        """Seed of the order within a shard's blocks, and of random layers; below 2^62."""
        return random.Random(f"{self.seed} {epoch} {shard}").getrandbits(62)  # noqa: S311
