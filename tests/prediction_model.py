"""A task and a SavedModel of it, made by hand, for tests of `trainer.predict`."""

import csv
import json
import os
import pathlib
import subprocess
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tests.export_schema import schema
from tests.loaded import client
from tfps.data import examples
from tfps.data.feature import Feature
from tfps.experiment.task import Task
from tfps.export.loaded_model import ExportedModel
from trainer.datasets import prediction as predict
from trainer.datasets.prediction import Predictions
from trainer.datasets.prediction_input import PredictionInput

FEATURES = (
    Feature("age", "float32"),
    Feature("ids", "int64", (2,), 10),
    Feature("town", "string"),
)
LABEL = Feature("clicked", "int64", vocabulary=2)

CONFIG = """
import dataclasses

import tfps
from tfps.data.converters import integer, number


@dataclasses.dataclass(frozen=True)
class Towns(tfps.Task):
    delimiter: str = "|"

    def features(self):
        return (
            tfps.Feature("age", "float32"),
            tfps.Feature("ids", "int64", (2,), 10),
            tfps.Feature("town", "string"),
        )

    def label(self):
        return tfps.Feature("clicked", "int64", vocabulary=2)

    def build_model(self):
        raise AssertionError("prediction needs no model of the task")

    loss = optimizer = build_model

    def rows(self):
        columns = ("clicked", "age", "first", "second", "unused", "town")
        fields = {
            "clicked": tfps.Field(("clicked",), integer),
            "age": tfps.Field(("age",), number),
            "ids": tfps.Field(("first", "second"), integer),
            "town": tfps.Field(("town",), lambda text: text.encode()),
        }
        return tfps.RowFormat(columns, self.delimiter, fields)


def get_config():
    return tfps.Experiment("towns", Towns())
"""


class PredictionTask(Task):
    def features(self):
        return FEATURES

    def label(self):
        return LABEL

    def build_model(self):
        raise AssertionError("prediction needs no model of the task")

    loss = optimizer = build_model


class Score(tf.Module):
    """`age / 3 + sum(ids) + 100 * length(town)`, doubled columns when `width` is 2.

    With `by_batch` it is multiplied by the number of records in the batch.
    """

    def __init__(self, width: int, by_batch: bool = False):
        super().__init__()
        self._width = width
        self._by_batch = by_batch

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, "age"),
            tf.TensorSpec([None, 2], tf.int64, "ids"),
            tf.TensorSpec([None], tf.string, "town"),
        ]
    )
    def serve(self, age, ids, town):
        length = tf.cast(tf.strings.length(town), tf.float32)
        score = age / 3.0 + tf.cast(tf.reduce_sum(ids, axis=1), tf.float32) + 100.0 * length
        if self._by_batch:
            score *= tf.cast(tf.size(age), tf.float32)
        if self._width > 1:
            score = tf.stack([score * k for k in range(1, self._width + 1)], axis=1)
        return {"predictions": score}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serve_examples(self, serialized):
        return self.serve(**examples.parse(serialized, FEATURES)[0])


def export(directory: pathlib.Path, width: int = 1, by_batch: bool = False) -> pathlib.Path:
    module = Score(width, by_batch)
    signatures = {"serving_default": module.serve, "serving_examples": module.serve_examples}
    tf.saved_model.save(module, str(directory), signatures=signatures)
    (directory / "schema.json").write_text(json.dumps(schema(FEATURES, [LABEL])))
    return directory


def drawn(count: int, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    towns = [b"Ulm", b"Bonn", "Köln".encode(), b"a,b"]
    return [
        {
            "age": float(np.float32(rng.normal())),
            "ids": rng.integers(0, 10, 2).tolist(),
            "town": towns[rng.integers(len(towns))],
            "clicked": int(rng.integers(2)),
        }
        for _ in range(count)
    ]


def expected(records: list[dict]) -> np.ndarray:
    age = np.float32([record["age"] for record in records])
    rest = [sum(record["ids"]) + 100 * len(record["town"]) for record in records]
    return age / np.float32(3) + np.float32(rest)


def write_records(
    path: pathlib.Path, records: list[dict], labels: Sequence[Feature] = (LABEL,)
) -> pathlib.Path:
    options = tf.io.TFRecordOptions("GZIP" if path.name.endswith(".gz") else "")
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(examples.encode(record, FEATURES, labels))
    return path


def run(
    model: pathlib.Path | ExportedModel,
    data: pathlib.Path | str,
    output: pathlib.Path,
    data_format: str = "auto",
    row_format=None,
    max_bad_rows: int = 0,
    batch_size: int = 4,
    overwrite: bool = False,
    keep: Sequence[str] = (),
) -> Predictions:
    loaded = model if isinstance(model, ExportedModel) else ExportedModel.load(str(model))
    source = PredictionInput.find(str(data), data_format, loaded, row_format, keep, max_bad_rows)
    return predict.predict(loaded, source, str(output), batch_size, overwrite)


def read(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return header, np.array(rows)


def check(output: pathlib.Path, records: list[dict], labelled: bool = True) -> None:
    header, rows = read(output)
    assert header == (["label", "prediction"] if labelled else ["prediction"])
    # Nine digits give back the very float32.
    assert rows[:, -1].astype(np.float32).tobytes() == expected(records).tobytes()
    if labelled:
        assert rows[:, 0].astype(int).tolist() == [record["clicked"] for record in records]
    assert not output.with_name(f"{output.name}.partial").exists()


# Every kind of data.


def command(*args: str) -> subprocess.CompletedProcess:
    # Importing an entry point has set the level in this process.
    environ = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return client.run("trainer.predict", *args, environ=environ)
