"""A tfps config: the DLRM of Naumov et al. on the data of configs/criteo.py."""

import dataclasses

import keras

import tfps
from benchmarks import models
from benchmarks.embeddings_mlp import EmbeddingsMlp


@dataclasses.dataclass(frozen=True)
class Dlrm(EmbeddingsMlp):
    """Criteo's features with dot products of their embeddings.

    Attributes:
        rows_per_table: Ids there are; a table has at most as many rows as the Kaggle data has ids.
    """

    rows_per_table: int = max(models.KAGGLE_IDS)
    learning_rate: float = models.LEARNING_RATES["dlrm"]

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        return models.dlrm(keras, self.rows_per_table, self.keyed if self.is_keyed else None)


def get_config() -> tfps.Experiment:
    """The experiment; its data is named by flags."""
    return tfps.Experiment("dlrm", Dlrm(), train=tfps.Train(batch_size=512, epochs=1))
