"""A tfps config: the model of configs/criteo.py with Adagrad or Adam, and with keys for ids."""

import dataclasses

import keras

import tfps
from benchmarks import models
from configs.criteo import Criteo
from tfps.errors import UserError


@dataclasses.dataclass(frozen=True)
class EmbeddingsMlp(Criteo):
    """Criteo's features and model.

    Attributes:
        optimizer_name: One of `models.OPTIMIZERS`, for tables and dense parameters.
        learning_rate: Of Adagrad; Adam has its own.
        is_keyed: Whether tables have no vocabulary: every id is a key.
        admit_after: Occurrences after which a key gets a row.
        max_rows: Of each of the 26 tables; 0 for one for each id.
        evict_first: Which rows make room.
    """

    optimizer_name: str = "adagrad"
    is_keyed: bool = False
    admit_after: int = 1
    max_rows: int = 0
    evict_first: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer_name not in models.OPTIMIZERS:
            raise UserError(
                f"task.optimizer_name={self.optimizer_name}: there are "
                f"{', '.join(models.OPTIMIZERS)}"
            )

    def embedding(self, name: str) -> keras.layers.Layer:
        """The layer of a categorical feature."""
        if not self.is_keyed:
            return super().embedding(name)
        return self.keyed(self.rows_per_table, name)

    def keyed(self, rows: int, name: str | None = None) -> keras.layers.Layer:
        """A table without a vocabulary, with room for `rows` or for `max_rows`."""
        return tfps.DynamicEmbedding(
            self.dim,
            min(rows, self.max_rows or rows),
            admit_after=self.admit_after,
            evict_first=self.evict_first,
            name=name,
        )

    def optimizer(self) -> keras.optimizers.Optimizer:
        """For tables as well."""
        return models.optimizer(keras, self.optimizer_name, self.learning_rate)


def get_config() -> tfps.Experiment:
    """The experiment; its data is named by flags."""
    train = tfps.Train(batch_size=512, epochs=1)
    return tfps.Experiment("embeddings_mlp", EmbeddingsMlp(), train=train)
