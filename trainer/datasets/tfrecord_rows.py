"""Rows of predictions as records, a `tf.train.Example` each."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.data.example_encoder import RecordEncoder
from tfps.data.feature import Feature

_FRAME_BYTES = 16  # a record's length, and the checksums of that and of the record


class TfrecordRows:
    """Writes columns as records with a feature for each.

    Attributes:
        written_bytes: Bytes of the records, those of the file once it is closed.
    """

    def __init__(self, path: str):
        self.written_bytes = 0
        self._writer = tf.io.TFRecordWriter(path)

    def write(self, columns: Mapping[str, Any]) -> None:
        """Adds records.

        Args:
            columns: By name arrays `[n, ...]`: whole numbers, floats, or bytes objects.
        """
        flat = {name: np.asarray(x).reshape(len(x), -1) for name, x in columns.items()}
        encoder = RecordEncoder([_feature(name, values) for name, values in flat.items()])
        records = encoder.encode({name: _values(column) for name, column in flat.items()})
        for record in records:
            self._writer.write(record)
        self.written_bytes += sum(map(len, records)) + _FRAME_BYTES * len(records)

    def close(self) -> None:
        """Writes what is left to write."""
        self._writer.close()


def _feature(name: str, values: np.ndarray) -> Feature:
    kinds = {"O": "string", "S": "string", "f": "float32"}
    return Feature(name, kinds.get(values.dtype.kind, "int64"), (values.shape[1],))


def _values(column: np.ndarray) -> Any:
    """A sequence for each of the values that a record has."""
    if column.dtype.kind in "OS":
        return column.T.tolist()
    return column.T.astype(np.float32 if column.dtype.kind == "f" else np.int64)
