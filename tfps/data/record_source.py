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
    """

    path: Any
    compression: Any = ""
    offsets: Any = (0,)
    first: Any = 0
    stride: Any = 1

    @classmethod
    def signature(cls) -> "RecordSource":
        """What a closure's argument looks like."""
        text, number = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
        return cls(text, text, tf.TensorSpec([None], tf.int64), number, number)

    def tensors(self) -> "RecordSource":
        """The same as tensors, to be a closure's argument."""
        return RecordSource(
            tf.constant(self.path), tf.constant(self.compression), *map(_int64, self[2:])
        )

    def from_record(self, record: Any) -> tf.data.Dataset:
        """The serialized records from one on; nothing is read before the nearest known offset.

        Args:
            record: Number of the record in the shard, from 0, not before `first`; scalar int64.

        Returns:
            Dataset of scalar strings.
        """
        offsets, first, stride, record = map(_int64, (*self[2:], record))
        entry = tf.minimum((record - first) // stride, tf.size(offsets, tf.int64) - 1)
        # The kernel behind tf.data.TFRecordDataset, which itself has no argument for offsets.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=[self.path],
            compression_type=self.compression,
            buffer_size=tf.constant(_BUFFER_BYTES, tf.int64),
            byte_offsets=offsets[entry][tf.newaxis],
        )
        dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
        # To rewrite a pipeline TensorFlow serializes it, and forgets this kernel's offsets.
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        # Nothing is tuned, here or in what is made of it; keeping count for it doubles the cost of
        # reading a record, and the tuner's thread may miss that its pipeline has ended: the closure
        # then waits for the next time it wakes, seconds later.
        options.autotune.enabled = False
        return dataset.skip(record - first - entry * stride).with_options(options)


def _int64(value: Any) -> tf.Tensor:
    return tf.convert_to_tensor(value, tf.int64)
