"""A recommender whose ids are any 64 bits, by ways to hold them: `benchmarks.raw_ids` trains it."""

import dataclasses

import keras
import tensorflow as tf

import tfps
from benchmarks.planted import ITEMS, USERS
from benchmarks.rare_ids import DIM, LABEL, factorized

VOCABULARY, KEYS, HASHED = "vocabulary", "keys", "hashed"
PER_ROW = 4  # ids for each row of a table that they are hashed into


@dataclasses.dataclass(frozen=True)
class Likes(tfps.Task):
    """Neural matrix factorization, as `benchmarks.rare_ids` has it.

    Attributes:
        tables: `vocabulary`: ids are numbers from 0 on, each has a row. Else they are any 64 bits:
            those of `keys` get rows as they come, those of `hashed` share a quarter of the rows.
        admit_after: Occurrences after which a key gets a row.
        unknown: What a key without a row has.
    """

    tables: str = KEYS
    admit_after: int = 1
    unknown: str = "zeros"

    def features(self) -> tuple[tfps.Feature, ...]:
        """A user and an item."""
        if self.tables == VOCABULARY:
            return (
                tfps.Feature("user", "int64", vocabulary=USERS),
                tfps.Feature("item", "int64", vocabulary=ITEMS),
            )
        return (tfps.Feature("user", "int64"), tfps.Feature("item", "int64"))

    def label(self) -> tfps.Feature:
        """1 where it was liked."""
        return LABEL

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        user, item = (keras.Input((), name=name, dtype="int64") for name in ("user", "item"))
        both = factorized(user, item, self._table)
        return keras.Model([user, item], keras.layers.Dense(1)(both))

    def loss(self) -> keras.losses.Loss:
        """Binary cross-entropy of logits."""
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Adam."""
        return keras.optimizers.Adam(0.002)

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Probabilities `[batch]`."""
        return keras.ops.sigmoid(outputs[:, 0])

    def _table(self, ids: int, name: str) -> keras.layers.Layer:
        if self.tables == KEYS:
            own = {"admit_after": self.admit_after, "unknown": self.unknown}
            return tfps.DynamicEmbedding(DIM, ids, evict_first="none", name=name, **own)
        if self.tables == HASHED:
            return tfps.Embedding(ids // PER_ROW, DIM, out_of_range="hash", name=name)
        return tfps.Embedding(ids, DIM, name=name)


def get_config() -> tfps.Experiment:
    """Three passes in batches of 256."""
    return tfps.Experiment("raw_ids", Likes(), train=tfps.Train(batch_size=256, epochs=3))
