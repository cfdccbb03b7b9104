"""A lease: some neighbouring batches of one shard, to be trained once in one epoch."""

import dataclasses
import itertools
import math
import random
from collections.abc import Iterable
from typing import NamedTuple

from tfps.data.record_source import Batching, RecordSource
from tfps.data.shards import Shard
from tfps.experiment.experiment import Experiment

TARGET_SECONDS = 5.0
LEAST_SECONDS = 1.0
_FIRST_STEPS = 16
_WEIGHT = 0.5  # of the newest measurement
# Saved positions in an epoch count on it: when it changes, the checkpoint's format has to.
CHUNK_BLOCKS = 64


class LeaseLength:
    """Chooses the steps of a lease from the time that steps were measured to take.

    A lease costs the chief messages and the worker the opening of a file, so it should be long; but
    a pause begins only where one ends, and at the end of an epoch the others wait for the last one.
    """

    def __init__(
        self, target_seconds: float = TARGET_SECONDS, least_seconds: float = LEAST_SECONDS
    ):
        """`least_seconds` is how long a lease takes at least, however near the epoch's end."""
        self._target_seconds = target_seconds
        self._least_seconds = least_seconds
        self.step_seconds: float | None = None  # None while none was measured

    @property
    def steps(self) -> int:
        """Steps that take as long as a lease should."""
        return self._within(self._target_seconds, _FIRST_STEPS)

    def within(self, left: int, workers: int, seconds: float = math.inf) -> int:
        """Steps of the next lease, `seconds` before the next pause."""
        steps = self._before_pause(seconds)
        if workers == 1:
            return steps
        # Half of each one's share of what is left at most, so that they end the epoch together.
        share = left // (2 * workers)
        return min(steps, max(share, self._within(self._least_seconds, 1)))

    def in_rounds(self, left: int, members: int, seconds: float = math.inf) -> int:
        """Steps of the next lease where workers step together: an equal share of `left`.

        Otherwise a round would be left to some, takes as long as one of all, and averages fewer
        records.
        """
        return min(self._before_pause(seconds), max(1, -(-left // members)))

    def measured(self, steps: int, seconds: float) -> None:
        """Notes how long so many steps of one closure took."""
        if steps < 1 or seconds <= 0.0:  # a lease begun again after its last step
            return
        newest, last = seconds / steps, self.step_seconds
        self.step_seconds = newest if last is None else last + _WEIGHT * (newest - last)

    def _before_pause(self, seconds: float) -> int:
        """Steps of a lease after which a pause in so many seconds does not come much too late."""
        # A worker has two leases, one of which waits for the other: with at most a quarter of what
        # is left each, they get shorter as the pause comes nearer, and it waits for two halves of
        # the least length.
        most = min(self._target_seconds, max(self._least_seconds / 2, seconds / 4))
        return self._within(most, _FIRST_STEPS)

    def _within(self, seconds: float, unmeasured: int) -> int:
        if self.step_seconds is None:
            return unmeasured
        return max(1, round(seconds / self.step_seconds))


class Chunk(NamedTuple):
    """Neighbouring records of one shard that an epoch's order keeps together."""

    shard: int
    first: int
    records: int


@dataclasses.dataclass(frozen=True)
class EpochOrder:
    """What the order depends on, besides the shards; never on speed or on who trains.

    Every shard is cut into chunks of `CHUNK_BLOCKS` blocks, and the chunks of all shards are
    shuffled. Within a block the records are shuffled.
    """

    batch_size: int
    # records of a block, rounded up to whole batches; 0 keeps a shard in one chunk and in order
    shuffle_buffer: int
    seed: int

    @classmethod
    def of(cls, experiment: Experiment) -> "EpochOrder":
        train = experiment.train
        return cls(train.batch_size, experiment.data.shuffle_buffer, train.seed)

    @property
    def block_batches(self) -> int:
        """Batches of a block; 0 without shuffling."""
        return -(-self.shuffle_buffer // self.batch_size)

    @classmethod
    def batching(cls, experiment: Experiment) -> Batching:
        order = cls.of(experiment)
        return Batching(
            experiment.task.schema(),
            order.batch_size,
            order.block_batches,
            experiment.data.parse_threads,
            experiment.negatives(),
        )

    def chunks(self, shards: Iterable[tuple[int, Shard]], epoch: int) -> list[Chunk]:
        """All records of an epoch in training order; a compressed shard is one chunk."""
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


@dataclasses.dataclass(frozen=True)
class Lease:
    """The unit of scheduling, packing, progress and recovery: one closure trains it.

    `source` reaches to the end of the last block, which is read as a whole. `first` counts in the
    shard. Only the last batch of a shard is not a whole one.
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
        return -(-self.records // self.batch_size)

    @property
    def first_batch(self) -> int:
        """Its first batch, counted in the shard."""
        return self.first // self.batch_size

    def records_of(self, batches: int) -> int:
        """Records of its first batches, at most all."""
        return min(batches * self.batch_size, self.records)

    @property
    def where(self) -> str:
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
