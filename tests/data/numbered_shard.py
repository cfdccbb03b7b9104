"""A shard whose records know their place."""

import tensorflow as tf

from tfps.data.record_source import RecordSource

COUNT, BATCH, STRIDE = 330, 32, 50


def write(path, compression="", corrupt=None):
    """Records whose first number is their own; returns where they begin.

    Args:
        path: Of the file.
        compression: "", "GZIP" or "ZLIB".
        corrupt: By record, what changes its features.
    """
    offsets = []
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for number in range(COUNT):
            example = tf.train.Example()
            features = example.features.feature
            features["numbers"].float_list.value.extend([number, 0, 0, 0])
            features["token"].int64_list.value.append(number % 20)
            features["label"].int64_list.value.append(number % 2)
            if corrupt and number in corrupt:
                corrupt[number](features)
            writer.write(example.SerializeToString())
            writer.flush()
            offsets.append(path.stat().st_size)
    return [0, *offsets[:-1]]


def source_of(shard, first=0):
    """The part of the shard's index from a record on."""
    path, offsets = shard
    entry = first // STRIDE
    known = tuple(offsets[::STRIDE][entry:])
    return RecordSource(str(path), "", known, entry * STRIDE, STRIDE, COUNT)
