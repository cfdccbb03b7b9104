"""A task whose model has every layer of Keras that turns raw features into numbers or ids."""

import csv
import dataclasses
import pathlib

import keras
import numpy as np

from tfps.data.converters import integer, number
from tfps.data.feature import Feature
from tfps.data.row_format import Field, RowFormat
from tfps.experiment.experiment import Data, Experiment, Train
from tfps.experiment.task import Task

TOWNS = ("Ulm", "Bonn", "Köln", "a,b")
WORDS = ("red", "green", "blue", "very", "dark")
CODES = (7, 11, 1013)
COLUMNS = ("town", "text", "code", "amount", "label")


@dataclasses.dataclass(frozen=True)
class Lookups(Task):
    """A town, a text, a number that is a name, and a number.

    Attributes:
        towns: File of the towns' names; empty for those in the code.
    """

    towns: str = ""

    def features(self):
        return (
            Feature("town", "string"),
            Feature("text", "string"),
            Feature("code", "int64"),
            Feature("amount", "float32", (1,)),
        )

    def label(self):
        return Feature("label", "int64", vocabulary=2)

    def build_model(self):
        layers = keras.layers
        town = keras.Input((), name="town", dtype="string")
        text = keras.Input((), name="text", dtype="string")
        code = keras.Input((), name="code", dtype="int64")
        amount = keras.Input((1,), name="amount")
        towns = layers.StringLookup(vocabulary=self.towns or list(TOWNS))
        codes = layers.IntegerLookup(vocabulary=list(CODES), num_oov_indices=2)
        words = layers.TextVectorization(vocabulary=list(WORDS), output_sequence_length=4)
        normal = layers.Normalization(axis=None)
        normal.adapt(np.linspace(0.0, 10.0, 11))
        # So wide that TensorFlow does not write its constants into a graph.
        wide = layers.Normalization(mean=np.linspace(0, 1, 200), variance=np.full(200, 0.5))
        parts = [
            layers.Embedding(8, 4)(towns(town)),
            layers.Embedding(8, 4)(codes(code)),
            layers.Flatten()(layers.Embedding(8, 4)(words(text))),
            layers.Embedding(16, 4)(layers.Hashing(16)(town)),
            layers.CategoryEncoding(8, output_mode="one_hot")(towns(town)),
            layers.Flatten()(layers.Embedding(4, 2)(layers.Discretization([2.0, 5.0])(amount))),
            normal(amount),
            layers.Dense(2)(wide(layers.CategoryEncoding(200, output_mode="one_hot")(codes(code)))),
            layers.Rescaling(0.1)(amount),
        ]
        logits = layers.Dense(1)(layers.Concatenate()(parts))
        return keras.Model({"town": town, "text": text, "code": code, "amount": amount}, logits)

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.Adam(0.05)

    def predictions(self, outputs):
        return keras.ops.sigmoid(keras.ops.reshape(outputs, (-1,)))

    def rows(self):
        fields = {name: Field((name,), lambda text: text.encode()) for name in ("town", "text")}
        fields |= {"code": Field(("code",), integer), "amount": Field(("amount",), number)}
        return RowFormat(COLUMNS, ",", fields | {"label": Field(("label",), integer)})


def get_config():
    return Experiment(
        "lookups", Lookups(), data=Data(shuffle_buffer=64), train=Train(batch_size=32, epochs=8)
    )


def write_rows(path: pathlib.Path, count: int, seed: int = 0) -> pathlib.Path:
    """Rows whose label follows from town, text and code together."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for _ in range(count):
            town = str(rng.choice([*TOWNS, "elsewhere"]))
            text = " ".join(rng.choice([*WORDS, "unknown"], int(rng.integers(1, 5))))
            code = int(rng.choice([*CODES, 99]))
            label = int((town in TOWNS[:2]) + ("red" in text) + (code == CODES[0]) >= 2)
            writer.writerow([town, text, code, round(float(rng.uniform(0, 10)), 3), label])
    return path
