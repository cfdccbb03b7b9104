"""What was computed on some records, and how it travels from one replica to another."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class EvaluatedPiece(NamedTuple):
    """What `Closures.evaluate` gives.

    Attributes:
        labels: What `Task.measured` names, and what is kept, `[records, ...]` by name.
        predictions: `[records, ...]` float32 by name.
        measured: What the model's own metrics have seen, by name, `[n]` float64.
    """

    loss_sum: float
    labels: dict[str, np.ndarray]
    predictions: dict[str, np.ndarray]
    measured: dict[str, np.ndarray]

    @classmethod
    def pack(cls, results: Sequence["EvaluatedPiece"]) -> bytes:
        """Results of several pieces, for `unpack`."""
        names, values = [], []
        for result in results:
            tensors = [
                {name: tf.constant(value) for name, value in some.items()}
                for some in (result.labels, result.predictions, result.measured)
            ]
            kinds = [{name: x.dtype.name for name, x in some.items()} for some in tensors]
            names.append([float(result.loss_sum), *kinds])
            values += [tf.io.serialize_tensor(x) for some in tensors for x in some.values()]
        return bytes(tf.io.serialize_tensor(tf.stack([json.dumps(names), *values])).numpy())

    @classmethod
    def unpack(cls, data: bytes) -> list["EvaluatedPiece"]:
        """The results that `pack` made bytes of."""
        names, *values = tf.unstack(tf.io.parse_tensor(data, tf.string))
        remaining = iter(values)
        return [
            cls(
                loss_sum,
                *(
                    {
                        name: tf.io.parse_tensor(next(remaining), tf.as_dtype(dtype)).numpy()
                        for name, dtype in some.items()
                    }
                    for some in kinds
                ),
            )
            for loss_sum, *kinds in json.loads(names.numpy())
        ]
