"""A shard's records from any record on: where they are, and how a closure reads them."""

from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from tfps.data.manifest import Manifest

_BUFFER_BYTES = 8 << 20


class RecordSource(NamedTuple):
    """A shard's file, and where some of its records begin: what a lease says, as Python values."""

    path: str
    compression: str = ""
    # Bytes of records `first`, `first + stride`, …; compressed files have that of record 0 alone.
    offsets: tuple[int, ...] = (0,)
    first: int = 0
    stride: int = 1
    end: int = 0  # the record after the last that is needed; 0 where all are
    # To pass over, in order: first record, number of records, byte of the record after them.
    bad_ranges: tuple[tuple[int, int, int], ...] = ()

    def tensors(self) -> "SourceTensors":
        return self.pack().unpack()

    def pack(self) -> "PackedSource":
        """The same as a closure's argument."""
        bad = (number for each in self.bad_ranges for number in each)
        numbers = [self.first, self.stride, self.end, len(self.offsets), *self.offsets, *bad]
        texts = tf.constant([self.path, self.compression])
        return PackedSource(texts, tf.constant(numbers, tf.int64))


class PackedSource(NamedTuple):
    """A `RecordSource` in two tensors: the chief makes and sends them for each lease."""

    texts: tf.Tensor  # path and compression, `[2]`
    numbers: tf.Tensor  # first, stride, end, number of offsets, offsets, bad ranges; `[n]` int64

    @classmethod
    def signature(cls) -> "PackedSource":
        return cls(tf.TensorSpec([2], tf.string), tf.TensorSpec([None], tf.int64))

    def unpack(self) -> "SourceTensors":
        path, compression = tf.unstack(self.texts, 2)
        first, stride, end, offsets = tf.unstack(self.numbers[:4], 4)
        behind = 4 + offsets
        bad_ranges = tf.reshape(self.numbers[behind:], [-1, 3])
        return SourceTensors(
            path, compression, self.numbers[4:behind], first, stride, end, bad_ranges
        )


class SourceTensors(NamedTuple):
    """A `RecordSource` as tensors, which are read; numbers are scalar int64."""

    path: tf.Tensor
    compression: tf.Tensor
    offsets: tf.Tensor  # `[1 or more]` int64
    first: tf.Tensor
    stride: tf.Tensor
    end: tf.Tensor
    bad_ranges: tf.Tensor  # `[n, 3]` int64

    def known(self, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The nearest record with a known offset, at or before one from `first` on; its byte."""
        entry = (record - self.first) // self.stride
        entry = tf.minimum(entry, tf.size(self.offsets, tf.int64) - 1)
        return self.first + entry * self.stride, self.offsets[entry]

    def from_byte(self, offset: tf.Tensor) -> tf.data.Dataset:
        """The serialized records from the one that begins at a byte on, scalar strings."""
        # The kernel behind tf.data.TFRecordDataset, which itself has no argument for offsets.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=[self.path],
            compression_type=self.compression,
            buffer_size=tf.constant(_BUFFER_BYTES, tf.int64),
            byte_offsets=offset[tf.newaxis],
        )
        return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))

    def from_record(self, record: tf.Tensor) -> tf.data.Dataset:
        """The serialized records from one on, bad ones too, read from a known offset on."""
        number, offset = self.known(record)
        return without_rewrites(self.from_byte(offset).skip(record - number))

    def around_bad_ranges(self, record: tf.Tensor) -> tf.data.Dataset:
        """The serialized records from one on, up to the source's end or beyond it.

        An empty string stands for each bad record.
        """
        # Most leases have no bad ranges, and reading in runs costs each record half as much again.
        variant = tf.cond(
            tf.size(self.bad_ranges) > 0,
            lambda: tf.data.experimental.to_variant(self._in_runs(record)),
            lambda: tf.data.experimental.to_variant(self.from_record(record)),
        )
        return without_rewrites(
            tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
        )

    def are_good(self, record: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """Which of `count` records from one on are in no bad range, `[count]` bool."""
        firsts, ends, _ = self._bounds()
        numbers = (record + tf.range(count))[:, tf.newaxis]
        return ~tf.reduce_any((numbers >= firsts) & (numbers < ends), 1)

    def _in_runs(self, record: tf.Tensor) -> tf.data.Dataset:
        """Reads the file from behind each bad range to the next one."""
        number, offset = self.known(record)
        firsts, ends, behind = self._bounds()
        # A bad range may begin before the nearest record whose offset is known.
        reached = ends > number
        firsts = tf.maximum(tf.boolean_mask(firsts, reached), number)
        ends, behind = (tf.boolean_mask(values, reached) for values in (ends, behind))
        starts = tf.concat([[number], ends], 0)
        offsets = tf.concat([[offset], behind], 0)
        good = tf.concat([firsts, [self.end]], 0) - starts
        missing = tf.concat([ends - firsts, [0]], 0)

        def run(offset: tf.Tensor, good: tf.Tensor, missing: tf.Tensor) -> tf.data.Dataset:
            blank = tf.data.Dataset.from_tensors(tf.constant("")).repeat(missing)
            return self.from_byte(offset).take(good).concatenate(blank)

        # A bad range may end behind what is needed: then the last run has less than no record.
        runs = tf.data.Dataset.from_tensor_slices((offsets, tf.maximum(good, 0), missing))
        return runs.flat_map(run).skip(record - number)

    def _bounds(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Of each bad range its first record, the one behind, and the byte where that begins."""
        first, count, behind = tf.unstack(self.bad_ranges, axis=1)
        return first, first + count, behind


def without_rewrites(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset which TensorFlow neither rewrites nor tunes, nor what is made of it."""
    options = tf.data.Options()
    # To rewrite a pipeline TensorFlow serializes it, and forgets a file's offsets.
    options.experimental_optimization.apply_default_optimizations = False
    # Keeping count for tuning doubles the cost of reading a record, and the tuner's thread may miss
    # that its pipeline has ended: the closure then waits for the next time it wakes, seconds later.
    options.autotune.enabled = False
    return dataset.with_options(options)


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
    """The pieces of a dataset, shard by shard (all shards where None), made as they are asked for.

    A compressed shard is one piece, since reading it means reading all that precedes.
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
