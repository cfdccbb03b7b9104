"""What was computed on evaluation shards, and how it travels from one replica to another."""

import dataclasses
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """What the workers computed on evaluation shards, every record once.

    Attributes:
        loss: Mean over the records.
        labels: What `Task.measured` names, `[records, ...]` by name.
        predictions: `[records, ...]` float32 by name.
    """

    loss: float
    labels: dict[str, np.ndarray]
    predictions: dict[str, np.ndarray]

    @classmethod
    def of(
        cls,
        shards: Sequence[tuple[float | np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]],
        records: int,
    ) -> "EvaluationResult":
        """Joins what closures returned.

        Args:
            shards: For each, in order, the sum of the loss, labels and predictions.
            records: Of all shards.
        """
        loss_sums, labels, predictions = zip(*shards, strict=True)
        return cls(float(sum(loss_sums)) / records, _joined(labels), _joined(predictions))


def _joined(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class ShardResult(NamedTuple):
    """What `Closures.evaluate` gives.

    Attributes:
        loss_sum: Sum over the shard's records of the loss of their batch.
        labels: What `Task.measured` names, `[records, ...]` by name.
        predictions: `[records, ...]` float32 by name.
    """

    loss_sum: float
    labels: dict[str, np.ndarray]
    predictions: dict[str, np.ndarray]

    @classmethod
    def pack(cls, results: Sequence["ShardResult"]) -> bytes:
        """Results of several shards, for `unpack`."""
        names, values = [], []
        for result in results:
            tensors = [
                {name: tf.constant(value) for name, value in some.items()}
                for some in (result.labels, result.predictions)
            ]
            kinds = [{name: x.dtype.name for name, x in some.items()} for some in tensors]
            names.append([float(result.loss_sum), *kinds])
            values += [tf.io.serialize_tensor(x) for some in tensors for x in some.values()]
        return bytes(tf.io.serialize_tensor(tf.stack([json.dumps(names), *values])).numpy())

    @classmethod
    def unpack(cls, data: bytes) -> list["ShardResult"]:
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
