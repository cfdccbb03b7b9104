"""A shard's records from any record on: where they are, and how a closure makes batches of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.data import examples
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.negatives import Negatives
from tfps.data.schema import Schema

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

    def __str__(self) -> str:
        return f"records {self.first} to {self.first + self.records} of {self.source.path}"

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


class Batching(NamedTuple):
    """How a shard's records become batches."""

    schema: Schema
    size: int  # records that are read per batch; the last one of a shard has what is left
    block: int = 0  # batches within which records are shuffled; 0 keeps the shard's order
    parse_threads: int = 1  # batches that are parsed at the same time, in order
    negatives: Negatives | None = None

    @property
    def examples_per_record(self) -> int:
        """What a batch holds for each record: the record itself and its negatives."""
        return 1 if self.negatives is None else 1 + self.negatives.count


def read_batches(
    source: SourceTensors,
    batching: Batching,
    seed: tf.Tensor | None = None,
    bounds: tuple[tf.Tensor, tf.Tensor] | None = None,
    empty: int = 0,
) -> tf.data.Dataset:
    """Reads batches of one shard from `bounds[0]` to `bounds[1]` (scalars int64), or all of them.

    Order and negatives depend on the seed (scalar int64) alone, so that a lease is resumed where it
    was. Reading begins at the last known offset before the first batch, or before its block.
    """
    first, end = bounds or (0, None)
    if batching.block:
        dataset = _shuffled(source, batching, seed, first, end)
    else:
        dataset = source.from_record(first * batching.size).batch(batching.size)
    if end is not None:
        dataset = dataset.take(end - first)
    if empty:
        dataset = dataset.concatenate(
            tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)).repeat(empty)
        )
    dataset = dataset.map(
        lambda serialized: examples.parse(serialized, *batching.schema),
        num_parallel_calls=batching.parse_threads,
        deterministic=True,
    )
    if negatives := batching.negatives:
        dataset = dataset.enumerate(first).map(
            lambda number, batch: negatives.add_to(batch[0], batch[1], seed, number)
        )
    return dataset.prefetch(1 + batching.parse_threads)


def read_good_batches(
    source: SourceTensors, batching: Batching, seed: tf.Tensor, bounds: tuple[tf.Tensor, tf.Tensor]
) -> tf.data.Dataset:
    """Reads what `read_batches` does, without the records in the source's bad ranges.

    The dataset is endless: (number, (bad, features, labels)), a batch's number in the shard and its
    bad records, scalars int64, and dicts by name of the others, `[batch, ...]`, where batch may be
    0. A batch that cannot be read is missing, and the numbers after it are wrong; at the end,
    batches without records have the number -1. The source ends with the block of the last batch.
    """
    # What cannot be read fails no closure: ClusterCoordinator would cancel those of all workers.
    # The batch's number is missing instead, and the chief finds out why.
    first, end = bounds
    schema, threads, negatives = batching.schema, batching.parse_threads, batching.negatives

    def parse(serialized: tf.Tensor, good: tf.Tensor) -> tuple[tf.Tensor, Any, Any]:
        kept = tf.boolean_mask(serialized, good)
        inputs, truth = examples.parse(kept, *schema)
        inside = _are_inside({**inputs, **truth}, schema.all)
        # Not tf.debugging.Assert, whose branches are functions that every closure has to set up.
        with tf.control_dependencies([tf.raw_ops.Assert(condition=inside, data=["an id"])]):
            bad = tf.size(good, tf.int64) - tf.size(kept, tf.int64)
        return bad, inputs, truth

    dataset = _with_marks(source, batching, seed, first, end).take(end - first)
    dataset = dataset.map(parse, num_parallel_calls=threads, deterministic=True)
    # An element that fails uses up a number, so that an endless failure comes to an end.
    read = tf.data.Dataset.zip((tf.data.Dataset.range(first, end), dataset))
    read = read.ignore_errors(log_warning=True)
    if negatives:

        def add(number: tf.Tensor, batch: Any) -> tuple[tf.Tensor, tuple[Any, ...]]:
            bad, inputs, truth = batch
            return number, (bad, *negatives.add_to(inputs, truth, seed, number))

        read = read.map(add)
    minus_one, zero = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
    empty = examples.parse(tf.zeros([0], tf.string), *schema)
    behind = tf.data.Dataset.from_tensors((minus_one, (zero, *empty))).repeat()
    return read.concatenate(behind).prefetch(1 + threads)


def _shuffled(
    source: SourceTensors,
    batching: Batching,
    seed: tf.Tensor | None,
    first: tf.Tensor | int,
    end: tf.Tensor | None,
) -> tf.data.Dataset:
    """Batches of serialized records from a batch on, shuffled within their blocks."""
    # Whole blocks at once, at a fraction of the cost of Dataset.shuffle, which moves one record at
    # a time and takes no seed that is a tensor.
    in_block = batching.block
    block = first // in_block
    dataset = source.from_record(block * in_block * batching.size)
    dataset = dataset.batch(in_block * batching.size).enumerate(block)
    if end is not None:
        dataset = dataset.take(-(-end // in_block) - block)
    dataset = dataset.map(
        lambda block, serialized: tf.random.experimental.stateless_shuffle(
            serialized, tf.stack([seed, block])
        )
    )
    # While a block is trained the next one is read.
    return dataset.prefetch(1).rebatch(batching.size).skip(first - block * in_block)


def _with_marks(
    source: SourceTensors, batching: Batching, seed: tf.Tensor, first: tf.Tensor, end: tf.Tensor
) -> tf.data.Dataset:
    """Batches of (serialized records, whether each is good) from a batch on."""
    in_block = max(1, batching.block)
    size, block = in_block * batching.size, first // in_block

    def place(number: tf.Tensor, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        record = number * size
        count = tf.minimum(source.end - record, size)
        # Fails where the file ends too early, which TensorFlow takes for its end.
        both = tf.reshape(serialized, [count]), source.are_good(record, count)
        if not batching.block:
            return both
        seeds = tf.stack([seed, number])
        shuffled = [tf.random.experimental.stateless_shuffle(values, seeds) for values in both]
        return shuffled[0], shuffled[1]

    dataset = source.around_bad_ranges(block * size).batch(size).enumerate(block)
    # While a block is trained the next one is read.
    dataset = dataset.take(-(-end // in_block) - block).map(place).prefetch(1)
    return dataset.rebatch(batching.size).skip(first - block * in_block)


def _are_inside(
    values: Mapping[str, tf.Tensor | tf.RaggedTensor], features: Sequence[Feature]
) -> tf.Tensor:
    bounded = [feature for feature in features if feature.vocabulary_size]
    ids = {feature: values[feature.name] for feature in bounded}
    limited = [
        (ids[feature].flat_values if feature.is_ragged else ids[feature], feature.vocabulary_size)
        for feature in bounded
        if feature.shape
    ]
    scalars = [feature for feature in bounded if not feature.shape]
    if scalars:  # All at once: there may be many, of few ids each.
        limits = tf.constant([feature.vocabulary_size for feature in scalars], tf.uint64)
        limited.append((tf.stack([ids[feature] for feature in scalars], 1), limits))
    # As unsigned numbers, ids below 0 are large ones.
    inside = [tf.bitcast(some, tf.uint64) < tf.cast(limit, tf.uint64) for some, limit in limited]
    return tf.reduce_all(tf.stack([tf.constant(True), *map(tf.reduce_all, inside)]))
