"""A tfps config: the model of configs/criteo.py with an optimizer that moves untouched rows."""

import dataclasses

import keras

from configs.criteo import Criteo
from tfps.experiment.experiment import Experiment, Train


@dataclasses.dataclass(frozen=True)
class CriteoWithAdam(Criteo):
    """Criteo's features and model.

    Attributes:
        learning_rate: Of Adam, for tables and dense parameters.
    """

    learning_rate: float = 0.001

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Adam, for tables as well."""
        return keras.optimizers.Adam(self.learning_rate)


def get_config() -> Experiment:
    """The experiment; its data is named by flags."""
    return Experiment("criteo_adam", CriteoWithAdam(), train=Train(batch_size=512, epochs=1))
