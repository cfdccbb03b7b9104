"""The batches that a closure holds before they are due."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.model.stateless_model import Features, Labels
from tfps.worker.step import Batch, batch_records


class ReadBatch(NamedTuple):
    """Records of a shard, before parameters are pulled for them.

    Attributes:
        features: By name, `[batch, *shape]`.
        labels: By name, `[batch, *shape]`.
        number: The batch's number in the shard, scalar int64; None where it is the one that is due.
        bad: How many bad records were left out of it, scalar int64; None where there are none.
    """

    features: Features
    labels: Labels
    number: tf.Tensor | None = None
    bad: tf.Tensor | None = None

    @property
    def records(self) -> tf.Tensor:
        """How many records it has, negatives among them, scalar int32."""
        return batch_records(self.features, self.labels)


class PulledBatch(NamedTuple):
    """A batch that is ready to be trained."""

    batch: Batch
    number: tf.Tensor | None
    bad: tf.Tensor | None

    @property
    def records(self) -> tf.Tensor:
        """How many records it has, negatives among them, scalar int32."""
        return batch_records(self.batch.features, self.batch.labels)


class BatchPrefetcher:
    """Some batches that are pulled for, and some that are only read, as the state of a loop."""

    def __init__(
        self,
        read: Callable[[], ReadBatch],
        pull: Callable[[Features, Labels], Batch],
        pulled: int,
        unpulled: int,
    ):
        self._read, self._pull, self._depth = read, pull, pulled
        held = [self._pulled(read()) for _ in range(pulled)]
        self._template = [*held, *(read() for _ in range(unpulled))]
        self.tensors = tensors_of(self._template)

    def next(
        self, tensors: Sequence[tf.Tensor]
    ) -> tuple[PulledBatch, PulledBatch, list[tf.Tensor]]:
        """Reads one more batch and pulls for one."""
        held = [*restored(self._template, tensors), self._read()]
        newest = held[self._depth] = self._pulled(held[self._depth])
        return held[0], newest, tensors_of(held[1:])

    def follow(self, tensors: Sequence[tf.Tensor], number: tf.Tensor, batches: int) -> tf.Tensor:
        """Whether the next batches are those that are due, and can be trained; scalar bool.

        Args:
            tensors: The batches held, at least so many as are asked about.
            batches: How many; where more than one, none of them may be without records.
        """
        next_ones = restored(self._template, tensors)[:batches]
        numbers = tf.stack([each.number for each in next_ones])
        follow = tf.reduce_all(tf.equal(numbers, number + tf.range(batches, dtype=tf.int64)))
        if batches == 1:
            return follow
        least = tf.reduce_min(tf.stack([each.records for each in next_ones]))
        return follow & (least > 0)

    def _pulled(self, read: ReadBatch) -> PulledBatch:
        return PulledBatch(self._pull(read.features, read.labels), read.number, read.bad)


def tensors_of(batches: Sequence[Any]) -> list[tf.Tensor]:
    """The tensors of batches, for a loop to carry; the rest is the same in every iteration."""
    parts = tf.nest.flatten(list(batches), expand_composites=True)
    # Copied to where the loop is: else those that were pulled would travel twice.
    return [tf.identity(part) for part in parts if tf.is_tensor(part)]


def restored(template: Sequence[Any], tensors: Sequence[tf.Tensor]) -> list[Any]:
    """Batches like the template's, of the tensors that `tensors_of` gave."""
    remaining = iter(tensors)
    parts = tf.nest.flatten(list(template), expand_composites=True)
    parts = [next(remaining) if tf.is_tensor(part) else part for part in parts]
    return tf.nest.pack_sequence_as(list(template), parts, expand_composites=True)
