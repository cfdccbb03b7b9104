"""A dataset in pieces of neighbouring records, for a pass over all of it in its order."""

from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from tfps.data.manifest import Manifest
from tfps.data.record_source import PackedSource, RecordSource


class Piece(NamedTuple):
    """Neighbouring records of one shard."""

    shard: int
    source: RecordSource
    first: int
    records: int
    is_last: bool

    def tensors(self) -> tuple[PackedSource, tf.Tensor]:
        """What `Closures.evaluate` is called with."""
        return self.source.pack(), tf.constant([self.first, self.records], tf.int64)


def pieces_of(data: Manifest, largest: int, shards: Iterator[int] | None = None) -> Iterator[Piece]:
    """The pieces of a dataset, made as they are asked for.

    Args:
        largest: Records that a piece has at most. A compressed shard is one piece, since nothing in
            it can be found without reading all before.
        shards: Positions of the shards, in their order; None for all.

    Yields:
        All pieces of one shard after those of the other, none of a shard without records.
    """
    for number in range(len(data.shards)) if shards is None else shards:
        shard = data.shards[number]
        size = largest if len(data.index.offsets[number]) else max(1, shard.records)
        for first in range(0, shard.records, size):
            count = min(size, shard.records - first)
            end = first + count
            entries = data.index.entries_of(number, first, end)
            source = RecordSource(data.path_of(shard), shard.compression, *entries, end)
            yield Piece(number, source, first, count, end == shard.records)
