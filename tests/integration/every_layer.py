"""A config whose model has a layer of every kind that treats variables in a way of its own."""

import dataclasses
from typing import Any

import keras

from tfps.data.feature import Feature
from tfps.experiment import metrics
from tfps.experiment.experiment import Data, Experiment, Train
from tfps.experiment.task import Table, Task

_DIM = 8


class Noisy(keras.layers.Layer):
    """Noise from a seed generator of its own, and a loss of what it was given."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.noise = keras.layers.GaussianNoise(0.1)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """The inputs with noise in training."""
        self.add_loss(1e-3 * keras.ops.mean(keras.ops.square(inputs)))
        return self.noise(inputs, training=training)


class EveryLayer(keras.Model):
    """Two outputs from an id, a sequence of ids of the same table, and numbers."""

    def __init__(self, vocabulary: int):
        super().__init__(name="every_layer")
        self.items = keras.layers.Embedding(vocabulary, _DIM, name="items")  # called twice
        self.pairs = keras.layers.Embedding(vocabulary, 4, dtype="mixed_float16", name="pairs")
        self.attention = keras.layers.MultiHeadAttention(2, 4, dropout=0.1, name="attention")
        self.average = keras.layers.GlobalAveragePooling1D(name="average")
        self.shared = keras.layers.Dense(
            _DIM, "tanh", kernel_regularizer="l2", activity_regularizer="l2", name="shared"
        )
        self.noisy = Noisy(name="noisy")
        self.tower = keras.Sequential(
            [
                keras.layers.Dense(16, dtype="mixed_bfloat16", name="wide"),
                keras.layers.BatchNormalization(dtype="mixed_bfloat16", name="normalized"),
                keras.layers.Activation("relu", dtype="mixed_bfloat16", name="relu"),
                keras.layers.Dropout(0.2, dtype="mixed_bfloat16", name="dropped"),
                keras.layers.LayerNormalization(name="scaled"),
            ],
            name="tower",
        )
        hidden = keras.Input((16,))
        self.heads = keras.Model(
            hidden,
            {
                "clicked": keras.layers.Dense(1, name="click")(hidden),
                "bought": keras.layers.Dense(1, name="buy", bias_regularizer="l1")(hidden),
            },
            name="heads",
        )

    def call(self, inputs: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """Logits `[batch, 1]` of both labels."""
        seen = self.items(inputs["seen"])
        seen = self.average(self.attention(seen, seen, training=training))
        paired = self.pairs((inputs["item"] * 7 + inputs["seen"][:, 0]) % 11)
        item = self.shared(self.items(inputs["item"]))
        merged = keras.ops.concatenate(
            [self.shared(seen), item, keras.ops.cast(paired, "float32"), inputs["numbers"]], axis=-1
        )
        return self.heads(self.tower(self.noisy(merged, training=training), training=training))


@dataclasses.dataclass(frozen=True)
class Shop(Task):
    """Who clicks, and who buys; each record has a weight.

    Attributes:
        vocabulary: Number of items.
    """

    vocabulary: int = 30

    def features(self) -> tuple[Feature, ...]:
        """An id, a sequence of ids, numbers."""
        return (
            Feature("item", "int64", vocabulary=self.vocabulary),
            Feature("seen", "int64", (5,), vocabulary=self.vocabulary),
            Feature("numbers", "float32", (3,)),
        )

    def label(self) -> tuple[Feature, ...]:
        """Two labels and a weight."""
        return (
            Feature("clicked", "int64", vocabulary=2),
            Feature("bought", "int64", vocabulary=2),
            Feature("weight", "float32"),
        )

    def build_model(self) -> keras.Model:
        """The model."""
        return EveryLayer(self.vocabulary)

    def compute_loss(self, features: Any, labels: Any, outputs: Any) -> Any:
        """Cross-entropy of both labels, in which purchases count twice."""
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        weights = 1.0 + labels["weight"]
        clicked = loss(labels["clicked"][:, None], outputs["clicked"], sample_weight=weights)
        bought = loss(labels["bought"][:, None], outputs["bought"], sample_weight=weights)
        return clicked + 2.0 * bought

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Adam, whose loss is scaled for the float16 table."""
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), 1024.0, 5)

    def table_optimizer(self, table: Table) -> keras.optimizers.Optimizer:
        """Adagrad."""
        return keras.optimizers.Adagrad(0.05)

    def predictions(self, outputs: Any) -> Any:
        """Probabilities `[batch]` of both labels."""
        return {name: keras.ops.sigmoid(outputs[name][:, 0]) for name in ("clicked", "bought")}

    def metrics(self) -> dict[str, Any]:
        """One of tfps and one of Keras."""
        return {
            "clicked": {"auc": metrics.auc, "keras_auc": keras.metrics.AUC()},
            "bought": {"accuracy": keras.metrics.BinaryAccuracy()},
        }


def get_config() -> Experiment:
    """One step per epoch of a shard, so that the evaluations follow the steps."""
    return Experiment(
        "every_layer",
        Shop(),
        data=Data(shuffle_buffer=64),
        train=Train(batch_size=48, epochs=12, seed=5, keep_checkpoints=1),
    )
