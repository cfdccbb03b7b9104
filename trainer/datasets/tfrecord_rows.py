"""Rows of predictions as records, a `tf.train.Example` each."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

_FRAME_BYTES = 16  # a record's length, and the checksums of that and of the record


class TfrecordRows:
    """Writes columns as records with a feature for each.

    Attributes:
        written_bytes: Bytes of the records, those of the file once it is closed.
    """

    def __init__(self, path: str):
        """Makes the file.

        Args:
            path: Of the file, local or `gs://`.
        """
        self.written_bytes = 0
        self._writer = tf.io.TFRecordWriter(path)

    def write(self, columns: Mapping[str, Any]) -> None:
        """Adds records.

        Args:
            columns: By name arrays `[n, ...]`: whole numbers, floats, or bytes objects.
        """
        flat = {name: np.asarray(x).reshape(len(x), -1) for name, x in columns.items()}
        for row in zip(*flat.values(), strict=True):
            features = {name: _feature(values) for name, values in zip(flat, row, strict=True)}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            record = example.SerializeToString(deterministic=True)
            self._writer.write(record)
            self.written_bytes += _FRAME_BYTES + len(record)

    def close(self) -> None:
        """Writes what is left to write."""
        self._writer.close()


def _feature(values: np.ndarray) -> tf.train.Feature:
    if values.dtype == object or values.dtype.kind == "S":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values.tolist()))
    if values.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values.tolist()))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values.tolist()))
