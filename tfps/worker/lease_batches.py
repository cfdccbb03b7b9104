"""The batches of the lease that a closure trains."""

from collections.abc import Callable

import tensorflow as tf

from tfps.data.batches import Batching, read_batches, read_good_batches
from tfps.data.record_source import SourceTensors
from tfps.leases.progress import REFUSED, Attempt
from tfps.model.draws import draw_of
from tfps.worker.prefetch import ReadBatch


class LeaseBatches:
    """In a closure: the batches of its lease, by their numbers in the shard.

    Attributes:
        place: What `LeaseProgress.place` named: the lease, and the lane that it is in; scalar
            int64.
        first: Number of its first batch, scalar int64.
        end: Number of the batch behind its last, scalar int64.
        may_be_bad: Whether there may be bad records: then its batches end before the first one that
            cannot be read, and one of them may be without records.
    """

    def __init__(
        self, source: SourceTensors, numbers: tf.Tensor, batching: Batching, may_be_bad: bool
    ):
        """Reads nothing yet.

        Args:
            numbers: [first, count, seed, place] int64: the lease's first record, counted in the
                shard, the number of its records, its seed, and its place.
        """
        first, count, self._seed, self.place = tf.unstack(numbers)
        self._source = source
        self._batching = batching
        self.may_be_bad = may_be_bad
        self.examples_per_record = batching.examples_per_record
        self.first = first // batching.size
        self.end = -(-(first + count) // batching.size)

    def begin_of(self, attempt: Attempt) -> tf.Tensor:
        """Number of the batch that an attempt trains first; `end` where it was refused."""
        is_refused = tf.equal(attempt.number, REFUSED)
        return tf.where(is_refused, self.end, self.first + attempt.steps)

    def reader(self, begin: tf.Tensor, behind: int = 0) -> Callable[[], ReadBatch]:
        """What reads one batch after the other, in the graph.

        Args:
            begin: Number of the first batch that is read, scalar int64.
            behind: Batches without records that may be read behind the lease, to be pulled ahead or
                held; where records may be bad, there are as many as are asked for.
        """
        order = self._batching, self._seed, (begin, self.end)
        if not self.may_be_bad:
            good = iter(read_batches(self._source, *order, behind))
            return lambda: ReadBatch(*next(good))
        readable = iter(read_good_batches(self._source, *order))

        def read() -> ReadBatch:
            number, (bad, features, labels) = next(readable)
            return ReadBatch(features, labels, number, bad)

        return read

    def draw(self, number: tf.Tensor) -> tf.Tensor:
        """What random layers draw from in the step of a batch, given by its number, `[2]` int64."""
        return draw_of(self._seed, number)
