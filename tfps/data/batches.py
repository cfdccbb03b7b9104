"""Makes the batches of a shard, inside the closure that trains them.

What cannot be read fails no closure: ClusterCoordinator would cancel those of all workers. The
batch in question is left out, its number is missing, and the chief finds out why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.data import examples
from tfps.data.feature import Feature
from tfps.data.negatives import Negatives
from tfps.data.record_source import SourceTensors
from tfps.data.schema import Schema


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
            lambda number, batch: negatives.beside(batch[0], batch[1], seed, number)
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
            return number, (bad, *negatives.beside(inputs, truth, seed, number))

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
