"""The leases of a run: todo, doing, done."""

import collections
import dataclasses
import math
from typing import Any

from tfps.data.followed_data import RunData
from tfps.data.record_source import RecordSource
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.leases.bad_record_log import BadRecords
from tfps.leases.lease import Chunk, EpochOrder, Lease

_SETTINGS = {
    "batch_size": "train.batch_size",
    "shuffle_buffer": "data.shuffle_buffer",
    "seed": "train.seed",
}


@dataclasses.dataclass(frozen=True)
class QueueState:
    """What a checkpoint keeps of a queue; records are counted over all epochs."""

    epoch: int = 0
    cursor: int = 0
    trained: int = 0
    repeated: int = 0
    order: EpochOrder | None = None  # what the cursor counts in, None where an epoch begins
    bad: int = 0
    bad_records: tuple[tuple[Any, ...], ...] = ()

    def refuse_another_order(self, order: EpochOrder) -> None:
        if self.order is None or self.order == order:
            return
        theirs, ours = dataclasses.asdict(self.order), dataclasses.asdict(order)
        differences = ", ".join(
            f"{setting} was {theirs[name]}, is {ours[name]}"
            for name, setting in _SETTINGS.items()
            if theirs[name] != ours[name]
        )
        raise UserError(
            f"the last checkpoint was saved in the middle of epoch {self.epoch + 1}, whose order "
            f"depends on what has changed: {differences}; set it back until the epoch is trained, "
            "or use another --job_dir"
        )


class LeaseQueue:
    """Assigns every record of every epoch once; one epoch ends before the next begins.

    Where datasets are followed each is an epoch, but the next begins when the last lease of the one
    before is assigned, and there is none to end before it is said so (`end`).

    Leases are cut from the head of the epoch's order, as long as asked for: the sequence of batches
    stays the same, and between leases one number says what is done. It opens no file.
    """

    def __init__(
        self,
        data: RunData,
        order: EpochOrder,
        epochs: int,
        state: QueueState,
        bad_records: BadRecords,
    ):
        state.refuse_another_order(order)
        self._data = data
        self._order = order
        self._epochs = math.inf if data.is_followed else epochs
        self.epoch = state.epoch  # being trained, from 0; the number of epochs when all are
        self.trained = state.trained  # records of all leases done
        self.repeated = state.repeated  # records of batches that may have been trained twice
        self.bad = state.bad  # records of all leases done that were not trained since they are bad
        self.bad_records = bad_records
        self._doing: set[Lease] = set()
        self._todo: collections.deque[Chunk] = collections.deque()
        self._cursor = 0
        self._begin_epoch(state.cursor)

    @classmethod
    def of(cls, experiment: Experiment, data: RunData, state: QueueState) -> "LeaseQueue":
        """The queue of an experiment's training, which resumes from a state."""
        bad_records = BadRecords.of(experiment, data, state.bad_records)
        order, epochs = EpochOrder.of(experiment), experiment.train.epochs
        return cls(data, order, epochs, state, bad_records)

    @property
    def finished(self) -> bool:
        """Whether every epoch is trained."""
        return self.epoch >= self._epochs

    @property
    def epoch_finished(self) -> bool:
        """Whether every lease of the epoch is done."""
        return not self._todo and not self._doing

    @property
    def idle(self) -> bool:
        """Whether no lease is being trained, so that parameters and state belong together."""
        return not self._doing

    @property
    def batches_left(self) -> int:
        """Batches of the epoch that are in no lease yet, as many as whole ones would be."""
        left = 0 if self.finished else self._data.records_from(self.epoch) - self._cursor
        return -(-left // self._order.batch_size)

    @property
    def skipped(self) -> int:
        """Good records that were assigned, but no lease trains or has trained."""
        doing = sum(lease.records for lease in self._doing)
        assigned = self._data.records_before(self.epoch) + self._cursor
        return assigned - doing - self.trained - self.bad

    def take(self, batches: int) -> Lease | None:
        """The next lease, now doing; None when none is left in this epoch.

        With `batches` of a block or more, it ends where a block does; with fewer, it lies within a
        block. A compressed shard is one lease.
        """
        self._begin_followed()
        if not self._todo:
            return None
        chunk = self._todo.popleft()
        data, place = self._data.find(chunk.shard)
        records = chunk.records if data.shards[place].compression else self._cut(chunk, batches)
        if rest := chunk.records - records:
            self._todo.appendleft(Chunk(chunk.shard, chunk.first + records, rest))
        lease = Lease(
            self.epoch,
            chunk.shard,
            self._source(chunk.shard, chunk.first, records),
            chunk.first,
            records,
            self._order.shard_seed(self.epoch, chunk.shard),
            self._order.batch_size,
        )
        self._cursor += records
        self._doing.add(lease)
        if self._data.is_followed and not self._todo:
            self.epoch, self._cursor = self.epoch + 1, 0
        return lease

    def block_of(self, lease: Lease, batches: int) -> tuple[int, int]:
        """The block, read as a whole, that holds the lease's batch number `batches`."""
        size = self._block_records
        first = (lease.first + batches * lease.batch_size) // size * size
        return first, min(first + size, lease.source.end)

    def without_bad_records(self, lease: Lease) -> Lease:
        """The same lease, now doing, whose source skips the bad records known by now."""
        source = self._source(lease.shard, lease.first, lease.records)
        again = dataclasses.replace(lease, source=source)
        self._doing.remove(lease)
        self._doing.add(again)
        return again

    def finish(self, lease: Lease, trained: int, bad: int = 0) -> None:
        """Marks a lease done; `bad` of its records were not trained."""
        self._doing.remove(lease)
        self.trained += trained
        self.bad += bad

    def repeat(self, records: int) -> None:
        """Notes records of batches that may have been trained twice."""
        self.repeated += records

    def repeat_batches(self, batches: int) -> None:
        """Notes batches that may have been trained twice, as many records as whole ones have."""
        self.repeated += batches * self._order.batch_size

    def next_epoch(self) -> None:
        if not self.epoch_finished:
            raise ValueError(f"epoch {self.epoch} has leases that are not done")
        self.epoch += 1
        self._begin_epoch(0)

    def end(self) -> None:
        """No further dataset is followed."""
        self._epochs = self.epoch

    def identities(self) -> tuple[dict[str, Any], ...]:
        """What a checkpoint keeps of the data, next to `state`."""
        return self._data.identities(self.epoch, self._cursor > 0)

    def state(self) -> QueueState:
        """What to keep; only when `idle`."""
        if not self.idle:
            raise ValueError(f"{len(self._doing)} leases are being trained")
        order = self._order if self._cursor else None
        return QueueState(
            self.epoch,
            self._cursor,
            self.trained,
            self.repeated,
            order,
            self.bad,
            self.bad_records.state(),
        )

    @property
    def _block_records(self) -> int:
        """Records of a block; those of a batch without shuffling."""
        return max(1, self._order.block_batches) * self._order.batch_size

    def _begin_epoch(self, cursor: int) -> None:
        """Fills the todo list with what comes behind the cursor."""
        self._cursor = cursor
        self._todo.clear()
        if self.finished:
            return
        done = cursor
        chunks = self._order.chunks(self._data.shards_of(self.epoch), self.epoch)
        for shard, first, records in chunks:
            of_chunk = min(done, records)
            done -= of_chunk
            if of_chunk < records:
                self._todo.append(Chunk(shard, first + of_chunk, records - of_chunk))

    def _begin_followed(self) -> None:
        """Fills an empty todo list from the next dataset that has records, if it is there."""
        while not self._todo and self._data.goes_on(self.epoch):
            self._begin_epoch(0)
            if not self._todo:
                self.epoch += 1

    def _cut(self, chunk: Chunk, batches: int) -> int:
        """Records of a lease from the head of a chunk.

        What can be assigned is cut into equal pieces, so that no small rest is left. With batches
        of 10 records and blocks of 4 batches, of a chunk that begins with record 0 and has 230:

        - asked for 10 batches: its 23 batches are three pieces, 8 batches each at most. That is a
          block or more, so the cut goes to where the nearest block ends, batch 8: 80 records.
        - asked for 3 batches: of the block's 4 batches there are two pieces of 2: 20 records.
        """
        size, block = self._order.batch_size, max(1, self._order.block_batches)
        first, end = chunk.first // size, math.ceil((chunk.first + chunk.records) / size)
        if batches < block:  # A block is read as a whole: a lease should not need two.
            end = min(end, (first // block + 1) * block)
        pieces = math.ceil((end - first) / batches)
        cut = first + math.ceil((end - first) / pieces)
        if cut - first >= block:
            cut = min(end, (cut + block // 2) // block * block)
        return min(cut * size, chunk.first + chunk.records) - chunk.first

    def _source(self, number: int, first: int, records: int) -> RecordSource:
        """A shard's file with the entries of its index that a lease needs, and its bad ranges."""
        data, place = self._data.find(number)
        shard, block = data.shards[place], self._block_records
        read_end = min(math.ceil((first + records) / block) * block, shard.records)
        offsets, known, stride = data.index.entries_of(
            place, first // block * block, first + records
        )
        bad_ranges = self.bad_records.bad_ranges(number, known, read_end)
        path = data.path_of(shard)
        return RecordSource(path, shard.compression, offsets, known, stride, read_end, bad_ranges)
