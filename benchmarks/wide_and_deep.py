"""A tfps config: the benchmarks' wide-and-deep model on the data of configs/criteo.py."""

import dataclasses

import keras

from benchmarks import models
from configs.criteo import Criteo
from tfps.experiment.experiment import Experiment, Train


@dataclasses.dataclass(frozen=True)
class WideAndDeep(Criteo):
    """Criteo's features with another model; of the fields `rows_per_table` counts."""

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        return models.wide_and_deep(keras, self.rows_per_table)


def get_config() -> Experiment:
    """The experiment; its data is named by flags."""
    return Experiment("wide_and_deep", WideAndDeep(), train=Train(batch_size=512, epochs=1))
