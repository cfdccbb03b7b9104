"""What an evaluation's closures found."""

import dataclasses

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
