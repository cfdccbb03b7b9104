"""A tfps config: the DLRM of Naumov et al. on the data of configs/criteo.py."""

import dataclasses

import keras

from benchmarks import models
from configs.criteo import Criteo
from tfps.experiment.experiment import Experiment, Train


@dataclasses.dataclass(frozen=True)
class Dlrm(Criteo):
    """Criteo's features with dot products of their embeddings.

    Attributes:
        rows_per_table: Ids there are; a table has at most as many rows as the Kaggle data has ids.
    """

    rows_per_table: int = max(models.KAGGLE_IDS)
    learning_rate: float = models.LEARNING_RATES["dlrm"]

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        return models.dlrm(keras, self.rows_per_table)


def get_config() -> Experiment:
    """The experiment; its data is named by flags."""
    return Experiment("dlrm", Dlrm(), train=Train(batch_size=512, epochs=1))
