"""A tfps config: the model of configs/criteo.py in steps that also wait, without using the CPU."""

import dataclasses
from typing import Any

import tensorflow as tf

from configs.criteo import Criteo
from tests.counting_task import late_zero
from tfps.experiment.experiment import Experiment, Train


@dataclasses.dataclass(frozen=True)
class WaitingCriteo(Criteo):
    """Criteo's features and model.

    Attributes:
        step_seconds: How long a step waits between pull and push, beside what it computes: it
            stands for cores that this machine has not.
    """

    step_seconds: float = 0.1

    def compute_loss(self, features: Any, labels: Any, outputs: Any) -> Any:
        """Criteo's, once the step has waited."""
        loss = self.loss()(self.truth(features, labels), outputs)
        if not self.step_seconds:
            return loss
        return loss * (1.0 + late_zero(tf.reduce_sum(outputs), self.step_seconds))


def get_config() -> Experiment:
    """The experiment; its data is named by flags."""
    return Experiment("waiting_criteo", WaitingCriteo(), train=Train(batch_size=512, epochs=1))
