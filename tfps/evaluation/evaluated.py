"""What an evaluation of parameters came to."""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """What the workers computed on evaluation shards, every record once.

    Attributes:
        loss: Mean over the records.
        labels: `[records, ...]` by name.
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
    ) -> "Evaluated":
        """Joins what closures returned.

        Args:
            shards: For each, in order, the sum of the loss, labels and predictions.
            records: Of all shards.
        """
        loss_sums, labels, predictions = zip(*shards, strict=True)
        return cls(float(sum(loss_sums)) / records, _joined(labels), _joined(predictions))


def _joined(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
