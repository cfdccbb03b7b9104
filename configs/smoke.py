"""A tiny task for fast tests: a table, batch normalisation, dropout and a regularised layer."""

import dataclasses
from typing import Any

import keras

import tfps
from tfps.data.converters import integer, number

_NUMBERS = ("number_1", "number_2", "number_3", "number_4")


@dataclasses.dataclass(frozen=True)
class Smoke(tfps.Task):
    """Four numbers and one id.

    Attributes:
        vocabulary: Rows of the table.
        dim: Embedding dimension.
        units: Units of the hidden layer.
        dropout: Share of hidden units that are dropped.
        regularization: Factor of the hidden kernel's squared weights in the loss.
        learning_rate: Of Adam, for the table and the dense parameters.
    """

    vocabulary: int = 20
    dim: int = 4
    units: int = 8
    dropout: float = 0.1
    regularization: float = 1e-4
    learning_rate: float = 0.01

    def features(self) -> tuple[tfps.Feature, ...]:
        """Numbers `(4,)` and a scalar id."""
        return (
            tfps.Feature("numbers", "float32", (len(_NUMBERS),)),
            tfps.Feature("token", "int64", vocabulary=self.vocabulary),
        )

    def label(self) -> tfps.Feature:
        """0 or 1."""
        return tfps.Feature("label", "int64", vocabulary=2)

    def build_model(self) -> keras.Model:
        """Logits `[batch, 1]`."""
        numbers = keras.Input((len(_NUMBERS),), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        embedding = keras.layers.Embedding(self.vocabulary, self.dim, name="token_table")(token)
        hidden = keras.layers.Concatenate(name="concatenated")([numbers, embedding])
        hidden = keras.layers.BatchNormalization(name="normalized")(hidden)
        hidden = keras.layers.Dense(
            self.units,
            activation="relu",
            kernel_regularizer=keras.regularizers.L2(self.regularization),
            name="hidden",
        )(hidden)
        hidden = keras.layers.Dropout(self.dropout, name="dropped")(hidden)
        logits = keras.layers.Dense(1, name="logits")(hidden)
        return keras.Model({"numbers": numbers, "token": token}, logits)

    def loss(self) -> keras.losses.Loss:
        """Binary cross-entropy of logits."""
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Adam, for the table as well."""
        return keras.optimizers.Adam(self.learning_rate)

    def predictions(self, outputs: Any) -> Any:
        """Probabilities `[batch]`."""
        return keras.ops.sigmoid(keras.ops.reshape(outputs, (-1,)))

    def rows(self) -> tfps.RowFormat:
        """Comma-separated: four numbers, an id below the vocabulary, a label."""
        return tfps.RowFormat(
            columns=(*_NUMBERS, "token", "label"),
            delimiter=",",
            fields={
                "numbers": tfps.Field(_NUMBERS, number),
                "token": tfps.Field(("token",), integer),
                "label": tfps.Field(("label",), integer),
            },
        )


def get_config() -> tfps.Experiment:
    """The experiment: a few hundred records train in a second or two."""
    return tfps.Experiment(
        "smoke",
        Smoke(),
        data=tfps.Data(shuffle_buffer=256),
        train=tfps.Train(batch_size=32, epochs=2),
    )
