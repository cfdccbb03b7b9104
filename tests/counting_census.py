"""The census data with a record's number, a small model with BatchNorm, and a count per record.

What the chaos runs train. The model is small and its tokens share one table, since a run of few
seconds spends most of its time on making graphs.
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

import tfps
from configs.census import Census
from tests import unrolling
from tests.counting_task import late_zero
from tfps.data.converters import integer
from tfps.data.feature import Feature
from tfps.data.row_format import Field, RowFormat
from tfps.experiment.experiment import Data, Experiment, Train

unrolling.set_to(2)

COUNT = "counted"  # the table that counts
_NUMBERS = ("age", "education_num", "hours_per_week", "capital_gain", "capital_loss")
_TOKENS = ("education", "marital_status", "occupation", "relationship")


@dataclasses.dataclass(frozen=True)
class CountingCensus(Census):
    """An MLP with BatchNorm over numbers and embeddings, beside a table that counts.

    Training a record once adds exactly 1 to the row of its number. Its gradient is -1 and the
    optimizer SGD with learning rate 1. Where rounds average gradients, that would be a share of 1:
    there the optimizer is Lion with learning rate 1, which goes by the sign alone. A record that
    two workers train in one round counts once then.

    Attributes:
        units: Of the hidden layer.
        records: Rows of the table that counts.
        step_seconds: How long a step takes between pull and push, beside what it computes; so
            there is a while in which faults can happen, though the job is small.
        in_rounds: Whether gradients are averaged.
        has_keys: Whether the tables have no vocabulary, and grow as records come.
    """

    dim: int = 4
    units: int = 16
    records: int = 6_400
    step_seconds: float = 0.05
    in_rounds: bool = False
    has_keys: bool = False

    def features(self) -> tuple[Feature, ...]:
        """Some of the census's, and the record's number."""
        used = [feature for feature in super().features() if feature.name in (*_NUMBERS, *_TOKENS)]
        return (*used, Feature("record", "int64", vocabulary=self.records))

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`, and rows of the table that counts, `[batch, 1]`."""
        inputs = {
            feature.name: keras.Input((), name=feature.name, dtype=feature.dtype)
            for feature in self.features()
        }
        ids, rows = [], 0
        for feature in self.features():
            if feature.name in _TOKENS:
                ids.append(inputs[feature.name] + rows)
                rows += feature.vocabulary_size
        tokens = self._table(rows, self.dim, "uniform", "tokens")(keras.ops.stack(ids, 1))
        parts = [keras.ops.expand_dims(inputs[name], 1) for name in _NUMBERS]
        parts.append(keras.layers.Flatten()(tokens))
        hidden = keras.layers.Dense(self.units, use_bias=False)(keras.layers.Concatenate()(parts))
        hidden = keras.layers.BatchNormalization(momentum=0.9, name="normalized")(hidden)
        logits = keras.layers.Dense(1)(keras.layers.ReLU()(hidden))
        count = self._table(self.records, 1, "zeros", COUNT)(inputs["record"])
        return keras.Model(inputs, [logits, count])

    def compute_loss(self, features: Any, labels: Any, outputs: Any) -> Any:
        """The census's; the counts do not change it, but get a gradient of -1 each."""
        logits, count = outputs
        late = late_zero(tf.reduce_sum(logits), self.step_seconds)
        counted = tf.reduce_sum(count - tf.stop_gradient(count))
        # Sums that are made twice may differ in their last bits: what counts must be 1 exactly.
        one = 1.0 + tf.cast(tf.math.is_nan(late), tf.float32)
        return self.loss()(labels, logits) - counted * one

    def table_optimizer(self, table: Any) -> keras.optimizers.Optimizer:
        """Counts, for the table that does."""
        if table.name.startswith(COUNT):
            return keras.optimizers.Lion(1.0) if self.in_rounds else keras.optimizers.SGD(1.0)
        return self.optimizer()

    def predictions(self, outputs: Any) -> Any:
        """Probabilities `[batch]`."""
        return super().predictions(outputs[0])

    def rows(self) -> RowFormat:
        """Those of the census behind a column with the record's number."""
        census = super().rows()
        fields = {**census.fields, "record": Field(("record",), integer)}
        return RowFormat(("record", *census.columns), census.delimiter, fields)

    def _table(self, rows: int, dim: int, initializer: str, name: str) -> keras.layers.Layer:
        if self.has_keys:
            # Keys are not spread evenly over ps, of which each has an equal share.
            own = {"embeddings_initializer": initializer, "name": name}
            return tfps.DynamicEmbedding(dim, 2 * rows, evict_first="none", **own)
        return keras.layers.Embedding(rows, dim, initializer, name=name)


def get_config() -> Experiment:
    """The experiment."""
    return Experiment(
        "counting_census",
        CountingCensus(),
        Data(shuffle_buffer=256),
        # Lazily, for what counts with Lion: Keras's moves every row in every update.
        Train(batch_size=64, epochs=2, row_updates="lazy"),
    )
