"""A shard's records from any record on, read inside a closure."""

from typing import Any, NamedTuple

import tensorflow as tf

_BUFFER_BYTES = 8 << 20


class RecordSource(NamedTuple):
    """A shard's file, and where some of its records begin; Python values, or tensors in a graph.

    Attributes:
        path: Path of the file, scalar string.
        compression: "", "GZIP" or "ZLIB", scalar string.
        offsets: Byte offsets of records `first`, `first + stride`, …, `[at least 1]` int64.
            Compressed files have only that of record 0.
        first: The record of the first offset, scalar int64.
        stride: Records between two offsets, scalar int64.
        end: The record after the last that is needed, scalar int64; 0 where all are.
        gaps: Neighbouring records that are passed over, in order, `[n, 3]` int64: the first of
            them, how many there are, and the byte at which the record behind them begins.
    """

    path: Any
    compression: Any = ""
    offsets: Any = (0,)
    first: Any = 0
    stride: Any = 1
    end: Any = 0
    gaps: Any = ()

    @classmethod
    def signature(cls) -> "RecordSource":
        """What a closure's argument looks like."""
        text, number = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
        offsets, gaps = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 3], tf.int64)
        return cls(text, text, offsets, number, number, number, gaps)

    def tensors(self) -> "RecordSource":
        """The same as tensors, to be a closure's argument."""
        return RecordSource(
            tf.constant(self.path),
            tf.constant(self.compression),
            _int64(self.offsets),
            _int64(self.first),
            _int64(self.stride),
            _int64(self.end),
            tf.reshape(_int64(self.gaps), [-1, 3]),
        )

    def known(self, record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The nearest record at or before one of which it is known where it begins.

        Args:
            record: Number of the record in the shard, from 0, not before `first`; scalar int64.

        Returns:
            Its number and the byte at which it begins, scalar int64.
        """
        offsets, first, stride, record = map(
            _int64, (self.offsets, self.first, self.stride, record)
        )
        entry = tf.minimum((record - first) // stride, tf.size(offsets, tf.int64) - 1)
        return first + entry * stride, offsets[entry]

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

    def from_record(self, record: Any) -> tf.data.Dataset:
        """The serialized records from one on; nothing is read before the nearest known offset.

        Args:
            record: Number of the record in the shard, from 0, not before `first`; scalar int64.

        Returns:
            Dataset of scalar strings.
        """
        number, offset = self.known(record)
        return without_rewrites(self.from_byte(offset).skip(record - number))


def without_rewrites(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset which TensorFlow neither rewrites nor tunes, nor what is made of it."""
    options = tf.data.Options()
    # To rewrite a pipeline TensorFlow serializes it, and forgets a file's offsets.
    options.experimental_optimization.apply_default_optimizations = False
    # Keeping count for tuning doubles the cost of reading a record, and the tuner's thread may miss
    # that its pipeline has ended: the closure then waits for the next time it wakes, seconds later.
    options.autotune.enabled = False
    return dataset.with_options(options)


def _int64(value: Any) -> tf.Tensor:
    return tf.convert_to_tensor(value, tf.int64)


def from_record(source: RecordSource, record: tf.Tensor) -> tf.data.Dataset:
    """The serialized records from one on.

    Args:
        source: The shard's file with its gaps; tensors.
        record: Number of the record in the shard, from 0; scalar int64.

    Returns:
        Dataset of scalar strings, up to the source's end or beyond it; an empty one stands for each
        record in a gap.
    """
    # Most leases have no gaps, and reading in runs costs each record half as much again.
    variant = tf.cond(
        tf.size(source.gaps) > 0,
        lambda: tf.data.experimental.to_variant(_in_runs(source, record)),
        lambda: tf.data.experimental.to_variant(source.from_record(record)),
    )
    return without_rewrites(
        tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    )


def are_good(source: RecordSource, record: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Which of some records are in no gap.

    Args:
        source: The shard's file with its gaps; tensors.
        record: The first of them, scalar int64.
        count: How many they are, scalar int64.

    Returns:
        `[count]` bool.
    """
    firsts, ends, _ = _bounds(source)
    numbers = (record + tf.range(count))[:, tf.newaxis]
    return ~tf.reduce_any((numbers >= firsts) & (numbers < ends), 1)


def _in_runs(source: RecordSource, record: tf.Tensor) -> tf.data.Dataset:
    """Reads the file from behind each gap to the next one."""
    number, offset = source.known(record)
    firsts, ends, behind = _bounds(source)
    # A gap may begin before the nearest record of which it is known where it begins.
    reached = ends > number
    firsts = tf.maximum(tf.boolean_mask(firsts, reached), number)
    ends, behind = (tf.boolean_mask(values, reached) for values in (ends, behind))
    starts = tf.concat([[number], ends], 0)
    offsets = tf.concat([[offset], behind], 0)
    good = tf.concat([firsts, [source.end]], 0) - starts
    missing = tf.concat([ends - firsts, [0]], 0)

    def run(offset: tf.Tensor, good: tf.Tensor, missing: tf.Tensor) -> tf.data.Dataset:
        blank = tf.data.Dataset.from_tensors(tf.constant("")).repeat(missing)
        return source.from_byte(offset).take(good).concatenate(blank)

    # A gap may end behind what is needed: then the last run has less than no record.
    runs = tf.data.Dataset.from_tensor_slices((offsets, tf.maximum(good, 0), missing))
    return runs.flat_map(run).skip(record - number)


def _bounds(source: RecordSource) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Of each gap its first record, the one behind, and the byte at which that one begins."""
    first, count, behind = tf.unstack(source.gaps, axis=1)
    return first, first + count, behind
