"""The losses of a training, which a checkpoint keeps for the run that resumes from it."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class TrainedEpoch:
    """What the training of an epoch came to.

    Attributes:
        number: The epoch, from 0.
        seconds: What its training took, checkpoints and evaluations left out; 0 where it was not
            kept.
    """

    number: int
    steps: int
    loss: float
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class TrainingLosses:
    """The loss of each epoch that was trained, and what there is of the one being trained.

    Attributes:
        epochs: The epochs, in their order; without those of before losses were kept.
    """

    epochs: tuple[TrainedEpoch, ...] = ()
    loss_sum: float = 0.0
    records: int = 0
    seconds: float = 0.0

    def trained(self, loss_sum: float, records: int, seconds: float) -> "TrainingLosses":
        """The losses after some more records of the epoch."""
        return dataclasses.replace(
            self,
            loss_sum=self.loss_sum + loss_sum,
            records=self.records + records,
            seconds=self.seconds + seconds,
        )

    def ended(self, number: int, steps: int) -> "TrainingLosses":
        """The losses at the end of an epoch.

        Args:
            number: The epoch, from 0.
        """
        loss = self.loss_sum / self.records if self.records else 0.0
        return TrainingLosses((*self.epochs, TrainedEpoch(number, steps, loss, self.seconds)))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TrainingLosses":
        """From what `dataclasses.asdict` gave."""
        epochs = tuple(TrainedEpoch(**epoch) for epoch in data["epochs"])
        return cls(epochs, data["loss_sum"], data["records"], data.get("seconds", 0.0))


NO_LOSSES = TrainingLosses()
