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
    """Has leases trained, and shards evaluated; every wait has a limit.

    Attributes:
        meter: What is measured meanwhile.
    """

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
            queue: Where leases come from and go to.
            pause: Asked before each lease but the first is given out; True lets those in flight
                finish and ends the training.
            report: Called several times a second.
            due: When, on the monotonic clock, `pause` will be true if not before.

        Raises:
            UserError: If a shard cannot be used.
            LostPsError: If a ps is lost.
            LostReplicaError: If one of several replicas is lost.
            RunError: If the loss is not finite or nothing moves any more.
        """

    def evaluate(self, pieces: Iterable[Piece]) -> Iterator[EvaluatedPiece]:
        """Evaluates records, each once; holds the results of a few pieces at a time.

        Args:
            pieces: The records, which begin at multiples of the batch size; where replicas train,
                those of the evaluation data, which all of them know.

        Yields:
            What each piece gave, in their order.

        Raises:
            UserError: If a shard cannot be used.
            LostPsError: If a ps is lost.
            LostReplicaError: If one of several replicas is lost.
            RunError: If nothing moves any more.
        """

    def gradients(self, source: RecordSource, lease: Sequence[int]) -> Gradients:
        """What the first batch of a lease gives, of which nothing is pushed.

        Args:
            source: Of the lease's shard.
            lease: Its first record, number of records, and seed.

        Returns:
            As `Closures.gradients`, as NumPy values.

        Raises:
            UserError: If the shard cannot be used.
            LostPsError: If a ps is lost.
            RunError: If nothing moves any more.
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
