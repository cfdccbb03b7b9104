"""A tfps config: the model of configs/criteo.py with tables that have no vocabulary."""

import dataclasses

import keras

import tfps
from configs.criteo import Criteo


@dataclasses.dataclass(frozen=True)
class CriteoWithKeys(Criteo):
    """Criteo's features and model; every id is a key.

    Attributes:
        admit_after: Occurrences after which a key gets a row.
        max_rows: Of each of the 26 tables; 0 for one for each id.
        evict_first: Which rows make room.
    """

    admit_after: int = 1
    max_rows: int = 0
    evict_first: str = "none"

    def embedding(self, name: str) -> keras.layers.Layer:
        """The layer of a categorical feature."""
        return tfps.DynamicEmbedding(
            self.dim,
            self.max_rows or self.rows_per_table,
            admit_after=self.admit_after,
            evict_first=self.evict_first,
            name=name,
        )


def get_config() -> tfps.Experiment:
    """The experiment; its data is named by flags."""
    train = tfps.Train(batch_size=512, epochs=1)
    return tfps.Experiment("criteo_keys", CriteoWithKeys(), train=train)
