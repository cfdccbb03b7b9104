"""What the chief's loop over leases is, whoever trains them."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from tfps.coordinator.progress import Progress, TrainingMeter
from tfps.data.pieces import Piece
from tfps.data.record_source import RecordSource
from tfps.errors import RunError
from tfps.evaluation.results import EvaluatedPiece
from tfps.leases.queue import LeaseQueue

POLL_SECONDS = 0.25

Gradients = tuple[list[np.ndarray], dict[str, np.ndarray]]


class Coordinator(Protocol):
    """Has leases trained, and shards evaluated; every wait has a limit."""

    meter: TrainingMeter

    def train(
        self,
        queue: LeaseQueue,
        pause: Callable[[], bool],
        report: Callable[[Progress], None],
        due: float = math.inf,
    ) -> None:
        """Trains leases until the epoch is finished or a pause is asked for.

        Returns with no lease in flight.

        Args:
            pause: Asked before each lease but the first is given out; True lets those in flight
                finish and ends the training.
            report: Called several times a second.
            due: When, on the monotonic clock, `pause` will be true if not before.
        """

    def evaluate(self, pieces: Iterable[Piece]) -> Iterator[EvaluatedPiece]:
        """Evaluates records, each once; holds the results of a few pieces at a time.

        Args:
            pieces: The records, which begin at multiples of the batch size; where replicas train,
                those of the evaluation data, which all of them know.
        """

    def gradients(self, source: RecordSource, lease: Sequence[int]) -> Gradients:
        """What the first batch of a lease gives, of which nothing is pushed.

        Returns:
            As `Closures.gradients`, as NumPy values.
        """


def not_finite(where: str) -> RunError:
    """The error of a loss that is not finite.

    Args:
        where: Which update of which lease, for people, such as "at step 3 of epoch 1, shard …".
    """
    return RunError(
        f"the loss is not finite {where}; lower the learning rate, or look for infinite values in "
        "the data; the last checkpoint holds the parameters from before"
    )
